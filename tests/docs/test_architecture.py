"""The tour of docs/architecture.md: each step names one file, and the file exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOUR = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
STEPS = re.findall(r"^(\d+)\. (.*?)(?=^\d+\. |^#)", TOUR, re.MULTILINE | re.DOTALL)


def test_the_steps_are_numbered_from_the_command_line_to_the_loader():
    assert [int(number) for number, _ in STEPS] == list(range(1, len(STEPS) + 1))
    assert len(STEPS) >= 30


@pytest.mark.parametrize(("number", "text"), STEPS, ids=[number for number, _ in STEPS])
def test_a_step_names_one_file_that_exists(number: str, text: str):
    (link,) = re.findall(r"\[([^]]+)\]\(\.\./([^)]+)\)", text)
    assert link[0].replace("\\", "") == link[1]
    assert (ROOT / link[1]).is_file()
