"""tests/releases/run.py: one release that fails does not stop the others, and its page says what the results say."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("releases") / "run.py"


@pytest.fixture
def script():
    spec = importlib.util.spec_from_file_location("releases_run", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def row(torch: str, python: str = "3.11.7", faults: tuple[str, ...] = ()) -> dict:
    return {"torch": torch, "triton": "3.9.0", "python": python, "passed": 9, "faults": list(faults)}


def test_a_release_that_cannot_be_installed_does_not_stop_the_next(script, monkeypatch, tmp_path, capsys):
    def install(release, *_):
        if release == "2.99.0":
            raise subprocess.CalledProcessError(1, "pip")

    counts = {"passed": 3, "failed": 0, "skipped": 0, "faults": []}
    monkeypatch.setattr(script, "install", install)
    monkeypatch.setattr(script, "tested", lambda *_: counts)
    monkeypatch.setattr(script, "lowered", lambda *_: {"benchmarks": 0, "faults": []})
    versions = json.dumps(row("2.15.0"))
    monkeypatch.setattr(script, "asked", lambda python, _: "3.14.0" if python == "python3" else versions)
    monkeypatch.setattr(script, "RESULT", tmp_path / "result.json")
    monkeypatch.setattr(script, "PAGE", tmp_path / "releases.md")
    arguments = ["run.py", "--python", "python3", "--folder", str(tmp_path), "--releases", "2.99.0", "2.15.0"]
    monkeypatch.setattr("sys.argv", arguments)
    assert script.main() == 1
    found = {each["torch"]: each for each in json.loads((tmp_path / "result.json").read_text())}
    assert found["2.99.0"]["faults"][0].startswith("install: ")
    assert (found["2.15.0"]["passed"], found["2.15.0"]["faults"]) == (3, [])
    assert "torch 2.99.0, Python 3.14.0: install: " in capsys.readouterr().out


def test_the_results_have_each_release_and_no_failure(script):
    results = json.loads(script.RESULT.read_text())
    assert {each["torch"].partition("+")[0] for each in results} == set(script.RELEASES)
    assert not any(each["faults"] or each["failed"] or each["benchmarks"] or each["warnings"] for each in results)
    assert script.PAGE.read_text() == script.page(results)


def test_a_new_result_replaces_the_row_of_its_torch_and_python_alone(script):
    old = [row("2.13.0+cpu", "3.11.2"), row("2.15.0", "3.14.1")]
    new = [row("2.13.0", "3.11.9"), row("2.9.1", "3.11.9")]
    assert script.merged(old, new) == [new[1], new[0], old[1]]


def test_the_page_lists_failures_below_the_table(script):
    page = script.page([row("2.11.0"), row("2.15.0", faults=("test_x",))])
    assert "torch 2.11 to 2.15 " in page
    assert page.endswith("- torch 2.15.0, Python 3.11.7: test_x\n")


def test_the_page_in_docs_says_what_the_results_say(script):
    assert script.PAGE.read_text(encoding="utf-8") == script.page(json.loads(script.RESULT.read_text(encoding="utf-8")))
