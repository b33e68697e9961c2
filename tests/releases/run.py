"""Run the tests of spaces, tables and loaders under each supported release of torch, without a GPU.

    python tests/releases/run.py [--releases 2.14.1 2.15.0] [--python python3.14] [--folder .releases]

Each release gets a virtual environment with the wheel of this checkout, `torch==RELEASE` and its triton, and the newest
of everything else that they allow. In it run tests/spaces, tests/engine/consumers, tests/engine/tables and
experiments/tables/versions.py, which lowers two models and counts benchmarks. All releases make one table, which goes
to docs/releases.md. A release that fails does not stop the next.

From PyPI, torch on Linux is a build for CUDA; its import loads NVIDIA's libraries on a machine without a GPU too. Such
a release downloads 3 GB and takes 7 GB in the folder. Builds for CPUs take 3 GB. pip prefers them where an index has
them: `PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu`. An environment in the folder is used again; remove the
folder to begin anew. The wheel is built and installed each time. The script needs no package but pip, so any Python
from 3.11 on runs it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULT = Path(__file__).with_name("result.json")
PAGE = ROOT / "docs" / "releases.md"
RELEASES = {"2.11.0": "3.6.0", "2.12.1": "3.7.1", "2.13.0": "3.7.1", "2.14.1": "3.8.0", "2.15.0": "3.9.0"}
"""Releases of torch with the triton of each; a build for CPUs does not require its own."""
TESTS = ("tests/spaces", "tests/engine/consumers", "tests/engine/tables")
PACKED = ("pyproject.toml", "README.md", "LICENSE", "NOTICE", "gemmtune", "engine", "spaces", "objectives")
"""Files and folders that the wheel is made of."""
INSTALL_SECONDS, TEST_SECONDS, LOWERING_SECONDS = 3600, 3600, 3600
# Python compiles what it imports, once: pip compiling all that is installed takes minutes.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
ENVIRONMENT["CUDA_VISIBLE_DEVICES"] = ""
VERSIONS = """
import json, platform, torch, triton
print(json.dumps({"torch": torch.__version__, "triton": triton.__version__, "python": platform.python_version()}))
"""
COLUMNS = {
    "torch": "torch",
    "triton": "triton",
    "python": "Python",
    "date": "date",
    "commit": "commit",
    "passed": "tests passed",
    "failed": "failed",
    "skipped": "skipped",
    "products": "products",
    "lookups": "look-ups",
    "benchmarks": "benchmarks",
    "warnings": "warnings",
    "without": "benchmarks without a table",
}
HEAD = """# Releases

gemmtune supports torch {first} to {last} with their tritons. `make releases` writes this page: it installs the wheel
into an environment per release, with the newest releases of everything else. There it runs the tests of spaces, tables
and loaders, and lowers two models without a GPU: the forum's layer and a Llama block at nine m, forward and backward
([experiments/tables](../experiments/tables/README.md)). Each model is lowered with a table made under that torch, and
with one made under the oldest torch whose `triton::mm` has the same source: 2.11 for 2.11, 2.12 for later ones. With a
table nothing may be benchmarked, and the loader may not warn. The last column shows that the count sees benchmarks.
Tests that need a GPU are skipped. The table has the releases whose run came to its end.

"""


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--releases", nargs="+", default=[*RELEASES], metavar="X.Y.Z", help="releases of torch")
    arguments.add_argument("--python", default=sys.executable, help="the Python of new environments")
    arguments.add_argument("--folder", type=Path, default=ROOT / ".releases", help="keeps environments and logs")
    arguments.add_argument("--tests", nargs="+", default=TESTS, help="what pytest runs")
    given = arguments.parse_args()
    python = asked(given.python, "import platform; print(platform.python_version())")
    rows = []
    for release in given.releases:
        folder = given.folder.absolute() / f"torch-{release}-python{python.rpartition('.')[0]}"
        print(f"== torch {release}, Python {python}: {folder}", flush=True)
        rows.append(tried(release, given.python, python, folder, given.tests))
        print("\n".join(table(rows[-1:])), flush=True)
        if tuple(given.tests) == TESTS:
            keep(rows)
    print("\n".join(table(rows)))
    print("\n".join(f"torch {row['torch']}, Python {row['python']}: {each}" for row in rows for each in row["faults"]))
    return int(any(row["faults"] for row in rows))


def keep(rows: list[dict]) -> None:
    """Write the rows into the result and its page, beside those of other releases."""
    known = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else []
    result = merged(known, rows)
    RESULT.write_text("[\n" + ",\n".join(f" {json.dumps(row)}" for row in result) + "\n]\n", encoding="utf-8")
    PAGE.write_text(page(result), encoding="utf-8")


def tried(release: str, base: str, python: str, folder: Path, tests: list[str]) -> dict:
    """Return the row of one release; a step that fails is one of its `faults`."""
    row: dict = {"torch": release, "python": python, "date": datetime.now(UTC).date().isoformat(), "faults": []}
    row["commit"] = asked_of_git("rev-parse", "--short", "HEAD")
    inside = str(folder / "venv" / "bin" / "python")
    try:
        install(release, base, folder, inside)
        row |= json.loads(asked(inside, VERSIONS))
    except (subprocess.SubprocessError, OSError) as error:
        return row | {"faults": [f"install: {error}"]}
    for step in (tested, lowered):
        try:
            found = step(inside, folder, tests)
        except (subprocess.SubprocessError, OSError, ValueError, LookupError, ET.ParseError) as error:
            found = {"faults": [f"{step.__name__}: {error!r}"]}
        row |= found | {"faults": [*row["faults"], *found["faults"]]}
    return row


def install(release: str, base: str, folder: Path, inside: str) -> None:
    """Make the environment, unless an earlier run finished it, and install the checkout's wheel into it."""
    folder.mkdir(parents=True, exist_ok=True)
    stamp, wheel = folder / "installed", str(packed(folder))
    pins = [f"torch=={release}", *(f"triton=={RELEASES[each]}" for each in RELEASES if each == release)]
    pip = (inside, "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--progress-bar", "off")
    begin = ((base, "-m", "venv", "--clear", str(folder / "venv")), (*pip, "--upgrade", "pip"))
    whole = (*begin, (*pip, "--no-compile", f"{wheel}[dev]", *pins))
    for number, command in enumerate(((*pip, "--no-deps", "--force-reinstall", wheel),) if stamp.exists() else whole):
        run_step(command, folder / f"install-{number}.log")
    stamp.touch()


def packed(folder: Path) -> Path:
    """Build the wheel of the checkout, from a copy: a build leaves files that a later build picks up."""
    tree, wheels = folder / "tree", folder / "wheels"
    for old in (tree, wheels):
        shutil.rmtree(old, ignore_errors=True)
    tree.mkdir()
    for name in PACKED:
        subprocess.run(("cp", "-R", str(ROOT / name), str(tree)), check=True)
    command = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", str(wheels), str(tree))
    run_step(command, folder / "wheel.log")
    (wheel,) = wheels.glob("gemmtune-*.whl")
    return wheel


def run_step(command: tuple[str, ...], log: Path) -> None:
    """Run a step of an install.

    Raises:
        OSError: it failed; the log says why.
    """
    if status := logged(command, log, INSTALL_SECONDS):
        raise OSError(f"{' '.join(command[-2:])} ended with {status}; see {log.name}")


def tested(inside: str, folder: Path, tests: list[str]) -> dict:
    """Run pytest; return the counts, and the tests that failed."""
    report = folder / "tests.xml"
    report.unlink(missing_ok=True)
    spread = ("--numprocesses", str((os.cpu_count() or 1) + 1), "--dist", "loadgroup")
    # -P: the checkout, from which the tests run, is not imported.
    command = (inside, "-P", "-m", "pytest", f"--timeout={TEST_SECONDS / 4:g}", *spread, f"--junitxml={report}", *tests)
    status = logged(command, folder / "tests.log", TEST_SECONDS)
    cases = list(ET.parse(report).getroot().iter("testcase"))  # pytest's own file
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = [case for case in cases if case.find("skipped") is not None]
    faults = [f"{case.get('classname')}::{case.get('name')}" for case in failed]
    if status and not faults:
        faults = [f"pytest ended with {status}; see tests.log"]
    counts = {"passed": len(cases) - len(failed) - len(skipped), "failed": len(failed), "skipped": len(skipped)}
    return counts | {"faults": faults}


def lowered(inside: str, folder: Path, _tests: list[str]) -> dict:
    """Lower both models with two tables and with none; return the counts over all m."""
    out = folder / "lowering.json"
    out.unlink(missing_ok=True)
    command = (inside, str(ROOT / "experiments/tables/versions.py"), "--out", str(out), inside)
    logged(command, folder / "lowering.log", LOWERING_SECONDS)  # its status says no more than the counts
    arms = json.loads(out.read_text(encoding="utf-8"))["arms"]
    rows = [row for arm in arms if arm["arm"] != "no table" for row in arm["rows"]]
    counts = {name: sum(row[name] for row in rows) for name in ("products", "lookups", "benchmarks")}
    said = sorted({message for row in rows for message in row["said"]})
    counts["warnings"] = len(said)
    counts["without"] = sum(row["benchmarks"] for arm in arms if arm["arm"] == "no table" for row in arm["rows"])
    faults = [f"lowering: {message}" for message in said]
    if counts["benchmarks"] or any(row["several"] for row in rows):
        faults.append(f"lowering: {counts['benchmarks']} benchmarks with a table")
    if not (counts["lookups"] and counts["without"]):
        faults.append("lowering: the counts see nothing; see lowering.log")
    return counts | {"faults": faults}


def logged(command: tuple[str, ...], log: Path, seconds: float) -> int:
    """Run a command that writes into `log`, for `seconds` at most; return its status."""
    with log.open("w", encoding="utf-8") as file:
        done = subprocess.run(
            command, cwd=ROOT, stdout=file, stderr=file, env=ENVIRONMENT, check=False, timeout=seconds
        )
    return done.returncode


def asked(python: str, program: str) -> str:
    """Return what a program prints under a Python."""
    return subprocess.run((python, "-c", program), capture_output=True, text=True, check=True).stdout.strip()


def asked_of_git(*arguments: str) -> str:
    """Return what git prints in this checkout; empty without git."""
    done = subprocess.run(("git", *arguments), cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def merged(known: list[dict], rows: list[dict]) -> list[dict]:
    """Replace the rows of equal torch and Python, the patch release of Python apart; the others stay."""
    by_key = {key(row): row for row in (*known, *rows)}
    return [by_key[each] for each in sorted(by_key)]


def key(row: dict) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the numbers of `2.13.0+cpu` and `3.14.2` that tell rows apart."""
    torch, python = row["torch"].partition("+")[0].split("."), row["python"].split(".")[:2]
    return tuple(map(int, torch)), tuple(map(int, python))


def table(rows: list[dict]) -> list[str]:
    """Render rows in Markdown; a count that no step reached is a dash."""
    lines = [" | ".join(COLUMNS.values()), "|".join("---" for _ in COLUMNS)]
    lines += [" | ".join(str(row.get(name, "–")) for name in COLUMNS) for row in rows]
    return [f"| {line} |" if "---" not in line else f"|{line}|" for line in lines]


def page(rows: list[dict]) -> str:
    """Render docs/releases.md."""
    first, *_, last = (release.rpartition(".")[0] for release in RELEASES)
    faults = [f"- torch {row['torch']}, Python {row['python']}: {each}" for row in rows for each in row["faults"]]
    below = ["", "Failures:", "", *faults] if faults else []
    return HEAD.format(first=first, last=last) + "\n".join([*table(rows), *below]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
