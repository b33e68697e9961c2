"""Contents of a wheel, and packages that importing the engine loads."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
import tomllib
import warnings
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow(10)

ROOT = Path(__file__).parents[1]
FOLDERS = ("engine", "objectives", "spaces")
DATA = ("py.typed", "*.toml", "*.csv.gz", "*.md")
HEAVY = {"torch", "triton", "cutlass", "ray", "optuna"}
OPTIONAL = {"torch", "triton", "cutlass", "ray"}


def sources(*patterns: str) -> set[str]:
    """Files of the three packages, as `gemmtune/...`, that match one of the patterns."""
    return {
        f"gemmtune/{path.relative_to(ROOT).as_posix()}"
        for folder in FOLDERS
        for pattern in patterns
        for path in (ROOT / folder).rglob(pattern)
    } | {f"gemmtune/{path.name}" for pattern in patterns for path in (ROOT / "gemmtune").glob(pattern)}


def module(file: str) -> str:
    """`gemmtune/engine/seams/__init__.py` is gemmtune.engine.seams."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The files of a wheel, built from a copy: a build in the checkout leaves files that a later build picks up."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for name in ("gemmtune", *FOLDERS, "tests", "experiments"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", "dist", "."]
    done = subprocess.run(build, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = (copy / "dist").glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_every_module(wheel: set[str]):
    packages = {file for file in sources("*.py") if f"{file.rpartition('/')[0]}/__init__.py" in sources("__init__.py")}
    assert packages == sources("*.py"), "a folder with modules lacks its __init__.py"
    assert sources("*.py") - wheel == set(), "packages in pyproject.toml lacks a folder"


def test_the_wheel_holds_every_data_file(wheel: set[str]):
    assert {"gemmtune/engine/py.typed", "gemmtune/engine/records/devices.toml"} <= sources(*DATA)
    assert sources(*DATA) - wheel == set(), "package-data in pyproject.toml lacks a pattern"


def test_the_wheel_holds_nothing_else(wheel: set[str]):
    foreign = {file for file in wheel if not file.startswith("gemmtune/")}
    assert all(file.partition("/")[0].endswith(".dist-info") for file in foreign)
    assert {file.split("/")[1] for file in wheel - foreign} == {
        *FOLDERS,
        "__init__.py",
        "__main__.py",
        "py.typed",
        "testing.py",
    }
    assert any(file.endswith("/licenses/LICENSE") for file in foreign)


def test_every_entry_point_of_pyproject_names_a_module_of_the_wheel(wheel: set[str]):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    points = project["scripts"] | {
        f"{group}: {name}": value for group, names in project["entry-points"].items() for name, value in names.items()
    }
    modules = {module(file) for file in wheel}
    assert {name: value for name, value in points.items() if value.partition(":")[0] not in modules} == {}


def loaded_by(program: str) -> set[str]:
    """Top-level modules in a fresh interpreter after a program."""
    report = "\nimport json, sys; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    done = subprocess.run([sys.executable, "-c", program + report], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def test_importing_the_engine_loads_nothing_heavy():
    assert loaded_by("import gemmtune.engine") & HEAVY == set()


def test_importing_the_records_and_the_seams_loads_nothing_heavy():
    modules = sorted(
        module(file)
        for file in sources("*.py")
        if file.startswith(("gemmtune/engine/records/", "gemmtune/engine/seams/"))
    )
    assert "gemmtune.engine.seams.registry" in modules
    assert loaded_by(f"import {', '.join(modules)}") & HEAVY == set()


def test_all_names_things_that_exist():
    wrong = []
    for name in sorted(module(file) for file in sources("*.py") if file.startswith("gemmtune/engine/")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what other packages warn of on import is theirs
            try:
                imported = importlib.import_module(name)
            except ModuleNotFoundError as error:
                if error.name not in OPTIONAL:
                    raise
                continue
        names = getattr(imported, "__all__", [])
        wrong += [f"{name}: {each}" for each in names if not hasattr(imported, each) or names.count(each) > 1]
    assert wrong == []
