"""Time products whose rows are not aligned, plain and padded, in turns. Usage: run.py --json OUT. Needs a CUDA GPU."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import torch
from torch._inductor import config
from torch.nn.functional import pad

from gemmtune.engine.consumers.inductor.loader.hooks.activation import should_pad

# n and k with the layout of B: vocabularies of BERT, GPT-2, Whisper and a Llama with one more token, and odd widths.
WEIGHTS = (
    (30522, 1024, "t"),
    (50257, 768, "t"),
    (51866, 1280, "t"),
    (32001, 4096, "t"),
    (1024, 30522, "n"),
    (768, 50257, "n"),
    (1001, 512, "t"),
    (4096, 1003, "t"),
    (1280, 3420, "t"),
)
ROWS = (16, 128, 256, 512, 1024, 2048, 8192)
ROUNDS, LAUNCHES = 7, 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, required=True, help="where the results go")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("no GPU found: this experiment times on one")
    with config.patch(shape_padding=False):
        rows = [measured(m, n, k, layout) for n, k, layout in WEIGHTS for m in ROWS]
        rows += [measured(n, k, m, "n", transposed=True) for n, k, m in ((30522, 1024, 2048), (50257, 768, 2048))]
    for row in rows:
        right = row["pads"] == (row["factor"] > 1) or abs(row["factor"] - 1) < 0.03
        line = "{problem:24} {plain_us:9.1f} {padded_us:9.1f} {factor:6.2f} {pads!s:5}".format(**row)
        print(line, "" if right else "WRONG")
    facts = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows}
    given.json.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def measured(m: int, n: int, k: int, layout: str, transposed: bool = False) -> dict:
    """Return the times of one product, and whether the loader's rule pads it."""
    make = lambda *sizes: torch.randn(*sizes, device="cuda", dtype=torch.bfloat16)  # noqa: E731
    a = make(k, m).t() if transposed else make(m, k)
    b = make(n, k).t() if layout == "t" else make(k, n)
    m_more, n_more, k_more = (-size % 8 for size in (m, n, k))

    def padded() -> torch.Tensor:
        """Pad as Inductor's pass does: every size to a multiple of eight, the result is a view."""
        one = pad(a, (0, k_more, 0, m_more)) if m_more or k_more else a
        other = pad(b, (0, n_more, 0, k_more)) if n_more or k_more else b
        return torch.mm(one, other)[:m, :n]

    times = timed({"plain": lambda: torch.mm(a, b), "padded": padded})
    return {
        "problem": f"{m}x{n}x{k}:{'t' if transposed else 'n'}{layout}",
        "plain_us": times["plain"],
        "padded_us": times["padded"],
        "factor": times["plain"] / times["padded"],
        "pads": should_pad(SimpleNamespace(), a, b, torch.ops.aten.mm),
    }


def timed(calls: dict[str, Callable[[], torch.Tensor]]) -> dict[str, float]:
    """Return the median time of each, µs, of rounds that alternate."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(LAUNCHES):
                call()
            end.record()
            end.synchronize()
            samples[name].append(start.elapsed_time(end) * 1e3 / LAUNCHES)
    return {name: median(taken) for name, taken in samples.items()}


if __name__ == "__main__":
    main()
