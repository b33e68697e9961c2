"""Contents of a wheel and of a source archive, what runs where they alone are installed, and what imports load.

The environment is empty but for the wheel and the packages that it requires, linked from the environment of the tests:
no index is asked, and versions are those here. CI installs both archives from an index each night.
"""

from __future__ import annotations

import importlib
import json
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import warnings
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

pytestmark = pytest.mark.slow(10)

ROOT = Path(__file__).parents[1]
FOLDERS = ("engine", "objectives", "spaces")
DATA = ("py.typed", "*.toml", "*.csv.gz", "*.md")
HEAVY = {"torch", "triton", "cutlass", "ray", "optuna"}
OPTIONAL = {"torch", "triton", "cutlass", "ray", "transformers"}


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


def built(kind: str, tree: Path) -> Path:
    """Build a "wheel" or an "sdist" of a tree, with the hook that pip and uv call; return its file."""
    program = f"from setuptools import build_meta; build_meta.build_{kind}('dist')"
    done = subprocess.run([sys.executable, "-c", program], cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = (tree / "dist").glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return file


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout: a build in the checkout leaves files that a later build picks up."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, copy)
    for name in ("gemmtune", *FOLDERS, "tests", "experiments"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture(scope="module")
def sdist(checkout: Path) -> Path:
    return built("sdist", checkout)


@pytest.fixture(scope="module")
def wheel_of_sdist(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    return built("wheel", folder / sdist.name.removesuffix(".tar.gz"))


@pytest.fixture(scope="module")
def wheel_file(checkout: Path, sdist: Path) -> Path:
    return built("wheel", checkout)


def contents(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def wheel(wheel_file: Path) -> set[str]:
    return set(contents(wheel_file))


def required(requirements: list[str], found: dict[str, Distribution]) -> dict[str, Distribution]:
    """The installed packages that requirements name, and those that these require, by name."""
    for requirement in map(Requirement, requirements):
        if requirement.name not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            found[requirement.name] = distribution(requirement.name)
            required(found[requirement.name].requires or [], found)
    return found


@pytest.fixture(scope="module")
def empty(wheel_of_sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of an environment that has the wheel of the source archive, and what that requires."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel_of_sdist) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(metadata).decode().partition("\n\n")[0].splitlines()
    for package in required([line[15:] for line in lines if line.startswith("Requires-Dist: ")], {}).values():
        for name in {file.parts[0] for file in package.files or []} - {"..", "__pycache__"}:
            (site / name).symlink_to(package.locate_file(name))
    install = [sys.executable, "-m", "pip", f"--python={folder / 'bin/python'}", "install", "-q", "--no-deps"]
    done = subprocess.run([*install, "--no-index", wheel_of_sdist], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "bin"


def test_the_wheel_of_the_source_archive_is_that_of_the_checkout(wheel_file: Path, wheel_of_sdist: Path):
    of_checkout, of_sdist = contents(wheel_file), contents(wheel_of_sdist)
    assert of_sdist.keys() == of_checkout.keys()
    assert [name for name, content in of_sdist.items() if content != of_checkout[name]] == []


def test_tune_and_verify_run_where_the_wheel_alone_is_installed(empty: Path, tmp_path: Path):
    tune = [empty / "gemmtune", "tune", "--problem", "16x4096x4096:bf16:nt", "--budget", "16", "--out", "out"]
    done = subprocess.run(tune, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads((tmp_path / "out/table.json").read_text(encoding="utf-8"))["rows"]
    assert row["choices"][0]["space"] == "triton_mm"
    assert (tmp_path / "out/inductor/gemmtune_inductor/__init__.py").is_file()
    (said,) = (line for line in done.stdout.splitlines() if "report.html" in line)
    assert re.fullmatch(r"no report.html: a report needs jinja2 and matplotlib: pip install .*\[report\]'?", said)
    verify = [empty / "gemmtune", "verify", "out", "--replay", "h200"]
    done = subprocess.run(verify, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "written: verified/table.json")
    assert said in done.stderr.splitlines()


def test_samplers_are_compared_where_the_wheel_alone_is_installed(empty: Path, tmp_path: Path):
    compare = [empty / "gemmtune", "compare", "--sampler", "random,evolution", "--budget", "4", "--seeds", "1"]
    done = subprocess.run(compare, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *_, written, said = done.stdout.splitlines()
    assert written == "comparison/comparison.json"
    assert re.fullmatch(r"no report.html and curves.png: a report needs jinja2 and matplotlib: pip install .*", said)


def test_the_container_and_the_releases_build_the_wheel_of_all_that_it_needs(checkout: Path):
    lines = (ROOT / "Containerfile").read_text(encoding="utf-8").splitlines()
    copied = [name for line in lines if line.startswith("COPY ") for name in line.split()[1:-1]]
    packed = runpy.run_path(str(ROOT / "tests/releases/run.py"))["PACKED"]
    assert sorted(copied) == sorted(packed)
    assert {path.name for path in checkout.iterdir()} - {"tests", "experiments", "build", "dist"} >= set(packed)


def test_the_extra_all_has_every_package_that_a_command_uses():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]

    def packages(extra: str) -> set[str]:
        found = set()
        for text in map(Requirement, extras[extra]):
            found |= (
                {name for each in text.extras for name in packages(each)} if text.name == "gemmtune" else {text.name}
            )
        return found

    used = {name for extra in extras.keys() - {"all", "dev", "docs"} for name in packages(extra)}
    assert {"torch", "ray", "matplotlib", "transformers"} <= used == packages("all")


@pytest.mark.parametrize(
    ("arguments", "lacking", "extra"),
    [
        (("tune", "--sampler", "tpe"), "optuna and cmaes", "study"),
        (("capture", "a:b", "--device", "H200"), "torch and triton", "triton"),
        (("tune", "--kernel", "mine.py:Mine"), "torch and triton", "triton"),
        (("check", "--draft", "mine.py:kernel"), "torch and triton", "triton"),
    ],
)
def test_a_command_names_the_extra_that_it_needs(empty: Path, tmp_path: Path, arguments, lacking, extra):
    command = [empty / "gemmtune", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert re.fullmatch(rf"(at work \.\.\.\n)?gemmtune: .* needs {lacking}: pip install .*\[{extra}\]'?\n", done.stderr)


def test_the_core_requires_few_packages():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert len(project["dependencies"]) <= 9


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
    assert {Path(file).name for file in foreign if "/licenses/" in file} == {"LICENSE", "NOTICE"}


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
