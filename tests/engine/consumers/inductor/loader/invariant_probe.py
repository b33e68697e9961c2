"""Probe for its own process: what Inductor runs with a batch-invariant table, in each of its deterministic modes.

Imports torch and the exported loader alone: any torch can run it.

Arguments: the folder of an export, a JSON case as inductor_probe.py has them. Prints, for each mode of this torch,
what products of a static and of a dynamic m run, and what `install` says of a table that would be mixed.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

import torch
from torch._inductor import config

sys.path.insert(0, str(Path(__file__).parent))
from inductor_probe import choose, dynamic, with_warnings

STATIC, HINTS = (1, 16, 5000), (16, 5000)


@contextlib.contextmanager
def deterministic_algorithms():
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


MODES = {
    "plain": contextlib.nullcontext,
    "torch.use_deterministic_algorithms": deterministic_algorithms,
    "deterministic": lambda: config.patch(deterministic=True),
    "batch_invariant": lambda: config.patch(batch_invariant=True),
}


def lowered(case):
    found = {f"static {m}": choose({**case, "m": m}) for m in STATIC}
    found |= {f"dynamic {hint}": dynamic(case, hint) for hint in HINTS}
    found["ahead of time"] = dynamic(case, 40, 2, 4000, aot_mode=True)
    return found


def main(export, case):
    sys.path.insert(0, export)
    import gemmtune_inductor

    modes = {name: mode for name, mode in MODES.items() if name != "batch_invariant" or hasattr(config, name)}
    with config.patch(deterministic=True):
        without = choose({**case, "m": 16})
    gemmtune_inductor.install()
    report = {"without": without, "modes": {}, "warnings": []}
    for name, mode in modes.items():
        with mode():
            report["modes"][name], said = with_warnings(lambda: lowered(case))
        report["warnings"] += said
    try:
        gemmtune_inductor.install(miss="autotune")
    except ValueError as error:
        report["refused"] = str(error)
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
