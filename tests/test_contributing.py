"""Hosted CI, pre-commit and CONTRIBUTING.md run what the Makefile runs, on every Python and torch that is supported."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml", reason="mkdocs, which brings PyYAML, is not installed")

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
CI = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
NIGHTLY = ("install", "container", "releases")


def recipe(target: str) -> list[str]:
    """The commands of a target of the Makefile, without the `@` before them."""
    (lines,) = re.findall(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    return [line.strip().removeprefix("@") for line in lines.splitlines()]


def runs(job: str) -> list[str]:
    return [step["run"] for step in CI["jobs"][job]["steps"] if "run" in step]


def test_pre_commit_runs_the_linters_of_make_lint_in_the_environment_of_the_pinned_versions():
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    hooks = [hook["entry"] for hook in repository["hooks"]]
    *linters, site = [line.replace("$(BIN)", ".venv/bin") for line in recipe("lint")]
    assert (repository["repo"], hooks, site) == ("local", linters, "$(SITE)")
    assert not any(hook["pass_filenames"] for hook in repository["hooks"])
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    for tool in ("ruff", "mypy", "import-linter"):
        assert re.search(rf"^{tool}==", pinned, re.MULTILINE)


def test_hosted_ci_checks_each_supported_python():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    least, below = map(int, re.fullmatch(r">=3\.(\d+),<3\.(\d+)", project["requires-python"]).groups())
    pythons = [f"3.{minor}" for minor in range(least, below)]
    assert CI["jobs"]["check"]["strategy"]["matrix"]["python"] == pythons
    assert CI["jobs"]["install"]["strategy"]["matrix"]["python"] == pythons
    assert (runs("check"), runs("install")) == ([".ci/run"], [".ci/installs"])


def test_hosted_ci_tries_each_supported_torch_at_night():
    releases = runpy.run_path(str(ROOT / "tests/releases/run.py"))["RELEASES"]
    assert CI["jobs"]["releases"]["strategy"]["matrix"]["torch"] == list(releases)
    assert runs("releases") == ['make releases ARGS="--releases ${{ matrix.torch }}"']
    assert CI[True]["schedule"]  # YAML takes the key `on` for true
    assert all("schedule" in CI["jobs"][job]["if"] for job in NIGHTLY)
    assert CI["jobs"].keys() == {"check", *NIGHTLY}


def test_contributing_takes_ten_points_and_names_what_is_there():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert re.findall(r"^(\d+)\. ", text, re.MULTILINE) == [str(number) for number in range(1, 11)]
    targets = {
        word for words in re.findall(r"`make (\w+)", text + " ".join(runs("releases"))) for word in words.split()
    }
    assert targets <= set(re.findall(r"^(\w+):", MAKEFILE, re.MULTILINE))
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    assert set(re.findall(r"`(gemmtune\.\w+)`", text)) <= set(groups)
    folders = re.findall(r"`((?:engine|spaces|tests)/[\w/]*)`", text)
    assert folders
    assert [folder for folder in folders if not (ROOT / folder).is_dir()] == []


def test_the_notice_names_files_that_are_there():
    files = re.findall(r"^- ([\w/.-]+):", (ROOT / "NOTICE").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(files) == 5
    assert [file for file in files if not (ROOT / file).is_file()] == []
