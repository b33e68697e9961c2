"""Quickstart pages show what their commands print; the reference pages name every key."""

from __future__ import annotations

import importlib.util
import json
import re
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest

import gemmtune as gt
from gemmtune.engine.campaign.plan import OPTIONS, Plan
from gemmtune.engine.campaign.plan_file import KEY_NAMES
from gemmtune.engine.io.options import Value
from gemmtune.engine.toolchain.gpu_info import present_device

DOCS = Path(__file__).parents[2] / "docs"
LIMITS = {name: option.of for name, option in OPTIONS.items() if option.value is Value.LIMITS}


def site(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / "site" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


JOURNEYS = site("journeys")


@pytest.mark.slow(5, together="commands")
@pytest.mark.skipif(present_device() is not None, reason="with a GPU the commands measure for minutes")
@pytest.mark.parametrize("page", JOURNEYS.PAGES, ids=lambda page: page.stem)
def test_a_page_shows_what_its_commands_print(
    page: Path, tmp_path: Path, served: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(JOURNEYS, "PROGRAMS", served)
    text = page.read_text(encoding="utf-8")
    now = JOURNEYS.run_page(text, tmp_path)
    assert JOURNEYS.masked(now) == JOURNEYS.masked(text), "run `make docs`"


def test_a_stale_output_is_replaced_and_a_failing_command_is_named(tmp_path: Path):
    page = '```text title="a.txt"\nhello\n```\n\n```console\n$ cat a.txt\nold\n$ echo \\\n    two\n```\n'
    assert JOURNEYS.run_page(page, tmp_path) == page.replace("old", "hello").replace("two\n", "two\ntwo\n")
    with pytest.raises(RuntimeError, match="exit status 3"):
        JOURNEYS.run_page("```console\n$ (exit 3) | cat\n```\n", tmp_path)
    assert JOURNEYS.masked("ran for 1.5 s") == JOURNEYS.masked("ran for 12 s")


def first_cells(text: str) -> set[str]:
    """The words in backquotes in the first column of a page's tables."""
    cells = re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE)
    return {word for cell in cells for word in re.findall(r"`([^`]+)`", cell)}


def test_the_campaign_keys_are_those_that_a_file_may_have():
    text = (DOCS / "campaign-keys.md").read_text(encoding="utf-8")
    tables = {f"{key}.{name}" for key, kind in LIMITS.items() for name in vars_of(kind())}
    assert first_cells(text.split("## Keys of a")[0]) == {*KEY_NAMES, *tables}
    known = {field.name for field in fields(gt.Problem)}
    assert set(re.findall(r"`(\w+)`", text.split("## Keys of a")[1])) >= known


def test_the_defaults_of_campaign_keys_are_the_plan_s():
    text = (DOCS / "campaign-keys.md").read_text(encoding="utf-8")
    default = Plan()
    for key in ("sampler", "objective", "budget", "seed", "batch", "margin"):
        shown = re.search(rf"^\| `{key}` \| [^|]+ \| `([^`]+)` \|", text, re.MULTILINE)
        assert json.loads(shown[1]) == getattr(default, key)
    for name, kind in LIMITS.items():
        for key, value in vars_of(kind()).items():
            shown = re.search(rf"^\| `{name}\.{key}` \| [^|]+ \| `([^`]+)` \|", text, re.MULTILINE)
            assert json.loads(shown[1]) == value


def vars_of(limits: object) -> dict[str, object]:
    return {field.name: getattr(limits, field.name) for field in fields(limits)}


def keys(content: object, skipped: frozenset[str] = frozenset({"config", "tie_band", "problem"})) -> set[str]:
    """Keys of objects at every depth, but not within configs and problems."""
    if isinstance(content, list):
        return {key for each in content for key in keys(each)}
    if not isinstance(content, dict):
        return set()
    return {key for name, each in content.items() for key in {name, *(() if name in skipped else keys(each))}}


def test_the_page_on_tables_names_every_key_of_a_table(tmp_path: Path):
    gt.tune(
        ["16x4096x4096:bf16:nt"], backend=gt.landscapes("h200"), sampler="random", budget=4, out=tmp_path, report=False
    )
    table = json.loads((tmp_path / "table.json").read_text(encoding="utf-8"))
    text = (DOCS / "reading-the-table.md").read_text(encoding="utf-8")
    assert keys(table) - set(re.findall(r"`(\w+)`", text)) == set()
