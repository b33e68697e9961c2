"""The campaign file that `gemmtune init` writes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.plan_file import KEY_NAMES, read_plan
from gemmtune.engine.campaign.plan_keys import KEYS, campaign_template
from gemmtune.engine.records.problem import Problem

PAGE = Path(__file__).parents[3] / "docs/campaign-keys.md"


def test_every_key_is_there_once():
    names = [key.name for key in KEYS]
    assert sorted([*names, "problem", "problems"]) == sorted(KEY_NAMES)
    assert len(set(names)) == len(names)


def test_the_template_is_a_campaign_of_one_problem(tmp_path):
    path = tmp_path / "campaign.toml"
    path.write_text(campaign_template())
    assert read_plan(path) == Plan(problems=(Problem.parse("16x4096x4096:bf16:nt"),))


def test_the_defaults_that_are_shown_are_the_defaults(tmp_path):
    path = tmp_path / "campaign.toml"
    path.write_text("\n".join(f"{key.name} = {key.value}" for key in KEYS if key.default))
    assert replace(read_plan(path)) == Plan()


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_every_example_is_accepted_and_the_page_names_the_default(tmp_path, key):
    path = tmp_path / "campaign.toml"
    path.write_text(f"{key.name} = {key.value}\n")
    read_plan(path)
    (row,) = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| `{key.name}` |")][:1]
    shown = row.split(" | ")[2].strip("`")
    assert shown == (key.value if key.default and key.value != "[]" else shown)
