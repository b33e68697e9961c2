"""Read every autotuned kernel of the checkouts into its forms, and check the adapters.

Usage: run.py CHECKOUTS --out FOLDER.

One line of FOLDER/lines.jsonl is one adapter that went through `gemmtune check`; those that are there already are not
repeated, so a run that was killed goes on. `--summary` writes FOLDER/result.json from them and from the sources.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
import warnings
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from forms import kernels
from served import REFUSED, TESTED

from gemmtune.engine.api.checking import check
from gemmtune.engine.consumers.triton.contract import python_function
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.errors import ProblemError
from gemmtune.engine.seams.kinds import expand_workloads
from gemmtune.engine.toolchain import absent_gpu

HERE = Path(__file__).parent
FILES = sorted(path for path in (HERE / "adapters").glob("[!t]*.py") if path.name != "base.py")  # no tuned_*.py
REPOSITORIES = (
    *("flash-linear-attention", "Liger-Kernel", "mamba", "unsloth", "ao", "xformers", "FlagGems", "aiter"),
    *("tritonbench", "kernels"),
)
H200 = catalogue.device("H200")
BATCH = 6  # adapters whose builds share builder processes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkouts", type=Path, help="folder of the ten checkouts")
    parser.add_argument("--out", type=Path, required=True, help="folder of lines.jsonl and result.json")
    parser.add_argument("--only", default="", help="check adapters whose names contain one of these texts, with commas")
    parser.add_argument("--again", action="store_true", help="repeat adapters that did not do what they should")
    parser.add_argument("--summary", action="store_true", help="check nothing, write result.json")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    checkouts = given.checkouts.resolve()
    if lost := [name for name in REPOSITORIES if not (checkouts / name).is_dir()]:
        raise SystemExit(f"{checkouts} has no {lost[0]}: the README says how to get it")
    lines = read(given.out / "lines.jsonl")
    if not given.summary:
        check_all(checkouts, given.out / "lines.jsonl", lines, given.only.split(","), again=given.again)
    (given.out / "result.json").write_text(summary(checkouts, lines), encoding="utf-8")
    return 0


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Return the last line of each adapter."""
    texts = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {line["adapter"]: line for line in map(json.loads, texts)}


def check_all(checkouts: Path, out: Path, lines: dict[str, Any], only: list[str], *, again: bool) -> None:
    os.environ["KERNEL_CENSUS"] = str(checkouts)
    sys.path.insert(0, str(HERE / "adapters"))
    warnings.simplefilter("ignore")
    wanted = [
        (file, name, adapter)
        for file in FILES
        for name, adapter in vars(importlib.import_module(file.stem)).items()
        if inspect.isclass(adapter) and hasattr(adapter, "kernel") and any(text in name for text in only)
        if name not in lines or (again and not lines[name]["right"])
    ]
    for batch in (wanted[at : at + BATCH] for at in range(0, len(wanted), BATCH)):
        for name, line in checked(batch).items():
            kernel = python_function(next(adapter for _, each, adapter in batch if each == name).kernel)
            source = Path(inspect.getsourcefile(kernel)).relative_to(checkouts).as_posix()
            lines[name] = {"adapter": name, "kernel": f"{source}:{kernel.__name__}", **line}
            with out.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(lines[name]) + "\n")
            print(name, "right" if line["right"] else "WRONG", line["says"][:300], flush=True)


def checked(batch: Sequence[tuple[Path, str, Any]]) -> dict[str, dict[str, Any]]:
    """Return what gemmtune's check says of each adapter, and whether that is right."""
    found, cases, expected = {}, {}, {name: getattr(adapter, "refused", "") for _, name, adapter in batch}
    for file, name, _ in batch:
        try:
            with absent_gpu.target(H200):
                cases[name] = expand_workloads(f"triton:{file}:{name}")
        except ProblemError as error:
            text = str(error).partition(".py: ")[2]
            right = bool(expected[name]) and expected[name] in text
            found[name] = {"right": right, "says": f"refused: {text}"}
    skus: defaultdict[str, list[Any]] = defaultdict(list)
    for _, name, adapter in batch:
        skus[getattr(adapter, "device", "H200")] += cases.get(name, ())
    done = [check(its, device=sku, configs=2) for sku, its in skus.items() if its]
    for name, its in cases.items():
        names = {case.name for case in its}
        builds = [build for each in done for build in each.builds if build.task.problem.name in names]
        launches = [launch for each in done for case, launch in each.launches.items() if case.name in names]
        reasons = [launch.reason for launch in launches if launch.reason] if launches else ["nothing was launched"]
        hits, built = not reasons, [build for build in builds if not build.reason]
        reasons = [*(build.reason for build in builds if build.reason and not built), *reasons]
        line = {"right": hits, "says": "hits" if hits else f"fails: {reasons[0]}"}
        if expected[name]:
            why = [reason for reason in reasons if expected[name] in reason]
            line = {"right": bool(why) and not hits, "says": f"refused: {why[0]}" if why else line["says"]}
        found[name] = {**line, "built": f"{len(built)} of {len(builds)}"}
    return found


def summary(checkouts: Path, lines: dict[str, dict[str, Any]]) -> str:
    """Return result.json: the commits, each form with what shows that it is served or refused, and each kernel."""
    found = [each for name in REPOSITORIES for each in kernels(checkouts / name)]
    adapters: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in lines.values():
        adapters[line["kernel"]].append(line)
    count: defaultdict[str, int] = defaultdict(int)
    shown: defaultdict[str, set[str]] = defaultdict(set)
    for each in found:
        for form in each.forms:
            count[form] += 1
            shown[form] |= {line["adapter"] for line in adapters[each.path] if line["says"] == "hits"}
    forms = {form: _form(form, count[form], shown[form]) for form in sorted(count)}
    unserved = {each.path: sorted(form for form in each.forms if not forms[form]["served"]) for each in found}
    served = sum(not forms for forms in unserved.values())
    hits = [line for line in lines.values() if line["says"] == "hits"]
    result = {
        "commits": {name: _commit(checkouts / name) for name in REPOSITORIES},
        "kernels": len(found),
        "served": served,
        "share": round(served / len(found), 4),
        "adapters": {"all": len(lines), "hit": len(hits), "right": sum(line["right"] for line in lines.values())},
        "kernels_with_adapters": len({line["kernel"] for line in lines.values()}),
    }
    parts = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in result.items()]
    parts.append(_block("forms", [f"{json.dumps(form)}: {json.dumps(value)}" for form, value in forms.items()], "{}"))
    parts.append(_block("checked", sorted(map(json.dumps, lines.values())), "[]"))
    parts.append(_block("read", [json.dumps([path, *why]) for path, why in unserved.items()], "[]"))
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _form(form: str, number: int, shown: set[str]) -> dict[str, Any]:
    refused = next((why for text, why in REFUSED.items() if re.search(text, form)), None)
    by = sorted(shown)[:3] or list(TESTED.get(form, ()))
    if refused is not None:
        return {"kernels": number, "served": False, "why": refused}
    return {"kernels": number, "served": bool(by), "shown by": by}


def _block(name: str, lines: list[str], brackets: str) -> str:
    return f'"{name}": {brackets[0]}\n' + ",\n".join(lines) + f"\n{brackets[1]}"


def _commit(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
