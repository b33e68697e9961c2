"""The campaign file that `gemmtune tune --init` writes."""

from __future__ import annotations

import importlib.util
from dataclasses import fields, replace
from pathlib import Path

import pytest

from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.plan_file import KEY_NAMES, read_plan
from gemmtune.engine.campaign.plan_keys import KEYS, PROBLEM_KEYS, TABLE_KEYS, campaign_template
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.tables.loss_limits import LossLimits, RangeLimits

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
def test_every_example_is_accepted(tmp_path, key):
    path = tmp_path / "campaign.toml"
    path.write_text(f"{key.name} = {key.value}\n")
    read_plan(path)


def test_the_keys_of_tables_and_their_defaults_are_those_that_are_read(tmp_path):
    path = tmp_path / "campaign.toml"
    path.write_text("\n".join(f"{key.name} = {key.value}" for key in TABLE_KEYS))
    assert read_plan(path) == Plan(portfolio=LossLimits(), ranges=RangeLimits())
    assert len(TABLE_KEYS) == len(fields(LossLimits)) + len(fields(RangeLimits))


def test_the_keys_of_a_problem_are_its_fields_and_each_default_is_the_default():
    shown = {key.name: key.value.strip('"') for key in PROBLEM_KEYS if key.default}
    assert {key.name for key in PROBLEM_KEYS} == {f.name for f in fields(Problem)} | {"dtype", "layout", "hold_out"}
    assert Problem.from_fields({"m": "16", "n": "8", "k": "8", **shown}) == Problem(16, 8, 8)


def test_the_page_has_the_tables_of_the_keys():
    page = PAGE.read_text(encoding="utf-8")
    spec = importlib.util.spec_from_file_location("campaign_keys", PAGE.parent / "site/campaign_keys.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.current(page) == page, "run make docs"


def test_a_text_of_a_range_stands_for_several_problems(tmp_path):
    (tmp_path / "campaign.toml").write_text('problems = ["flex:decode:b1:h8:q1:kv64..1024:d64"]\n')
    assert [each.size for each in read_plan(tmp_path / "campaign.toml").problems] == [64, 256, 1024]
