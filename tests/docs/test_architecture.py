"""docs/architecture.md: each step names one file, the file has what the step names, and the rooms are the layers."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOUR = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
STEPS = re.findall(r"^(\d+)\. (.*?)(?=^\d+\. |^#)", TOUR, re.MULTILINE | re.DOTALL)
MOST_STEPS = 30
NAMED = ("BuildQueue", "SetupCache", "GpuNormalization", "FinishedSearches", "KnownReader")


def test_the_steps_are_numbered_from_the_command_line_to_the_loader():
    assert [int(number) for number, _ in STEPS] == list(range(1, len(STEPS) + 1))
    assert 20 <= len(STEPS) <= MOST_STEPS
    assert "engine/cli/" in STEPS[0][1]
    assert "/loader.py" in STEPS[-1][1]


@pytest.mark.parametrize(("number", "text"), STEPS, ids=[number for number, _ in STEPS])
def test_a_step_names_one_file_that_exists_and_the_class_that_the_file_has(number: str, text: str):
    (link,) = re.findall(r"\[([^]]+)\]\(\.\./([^)]+)\)", text)
    assert link[0].replace("\\", "") == link[1]
    source = (ROOT / link[1]).read_text(encoding="utf-8")
    for name in re.findall(r"^\*\*`([A-Z]\w+)`\*\*", text):
        assert re.search(rf"^class {name}\b", source, re.MULTILINE)


def test_the_tour_passes_what_decides_what_is_built_measured_and_asked_again():
    assert [name for name in NAMED if f"**`{name}`**" not in TOUR] == []


def test_the_rooms_are_the_layers_of_the_import_rules():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (layers,) = (contract["layers"] for contract in settings["contracts"] if contract["type"] == "layers")
    expected = [re.findall(r"gemmtune\.engine\.(\w+)", layer) for layer in layers]
    (rooms,) = re.findall(r"^(`cli` > .*?)\n\n", TOUR, re.MULTILINE | re.DOTALL)
    assert [re.findall(r"`(\w+)`", layer) for layer in rooms.split(">")] == expected
