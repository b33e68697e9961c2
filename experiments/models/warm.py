"""Time the first call of a model that was compiled ahead, with a table. See README.md.

    python warm.py --table FOLDER/table --cases bert-2048-tokens,whisper-training --out warm.json

Each call has a process of its own: `torch.compile` alone, then the table, which saves what Inductor caches, then the
table again, which loads that. All have one cache folder, which is empty when a process begins. Needs the table's GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from run import PTXAS

CALLS = (("compile", ""), ("table", "save"), ("table", "load"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", type=Path, required=True, help="folder of the table")
    parser.add_argument("--cases", required=True, help="names of cases of run.py, with commas")
    parser.add_argument("--out", type=Path, required=True, help="file for the first calls of all cases")
    given = parser.parse_args()
    table = given.table.resolve()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        cache, artifacts = Path(folder) / "cache", Path(folder) / "warm.bin"
        for name in given.cases.split(","):
            found[name] = []
            for arm, what in CALLS:
                shutil.rmtree(cache, ignore_errors=True)
                code = f"import warm; warm.first({name!r}, {arm!r}, {what!r}, {str(table)!r}, {str(artifacts)!r})"
                environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache)}
                if PTXAS.is_file():  # as in run.py
                    environment.setdefault("TRITON_PTXAS_PATH", str(PTXAS))
                command = [sys.executable, "-c", code]
                done = subprocess.run(
                    command, cwd=Path(__file__).parent, env=environment, check=True, stdout=subprocess.PIPE, text=True
                )
                found[name].append(json.loads(done.stdout.splitlines()[-1]))
                print(name, found[name][-1], flush=True)
                given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def first(name: str, arm: str, what: str, table: str, artifacts: str) -> None:
    """Print the first call of a case in one arm as JSON, before which `artifacts` are loaded, or after which saved."""
    import torch
    from run import cases

    from gemmtune.engine.capture.inputs import parse_inputs
    from gemmtune.engine.measure.models.bench_model import _prepared
    from gemmtune.engine.measure.models.running import compiled_arm, first_call, quietly
    from gemmtune.engine.tables.inductor import loader

    [case] = [case for case in cases() if case.name == name]
    prepared = _prepared(case.options[0], parse_inputs(case.inputs)[0], grad=case.grad)
    quietly(prepared.arm(prepared.call))  # loads the vendor library
    torch._dynamo.config.recompile_limit = 64
    if arm != "compile":
        loader.install(Path(table) / "inductor" / "inductor_table.json")
    if what == "load":
        torch.compiler.load_cache_artifacts(Path(artifacts).read_bytes())
    call = quietly(lambda: first_call(compiled_arm(prepared, arm)))
    if what == "save":
        Path(artifacts).write_bytes(torch.compiler.save_cache_artifacts()[0])
    print(json.dumps({"arm": arm, "artifacts": what, "seconds": call.seconds, "kernels timed": call.kernel_benchmarks}))


if __name__ == "__main__":
    main()
