"""Each option of a plan is at every door: gt.tune, the command line, the campaign file."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any, get_type_hints

import pytest
from typer.main import get_command

import gemmtune as gt
from gemmtune.engine.api.plans import plan_with
from gemmtune.engine.campaign.plan import OPTIONS, Plan, PlanOptions
from gemmtune.engine.campaign.plan_file import KEY_NAMES
from gemmtune.engine.campaign.plan_keys import KEYS
from gemmtune.engine.cli import commands
from gemmtune.engine.io.options import options_of
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.scheduling.stopping import Limits
from gemmtune.engine.tables.loss_limits import LossLimits, RangeLimits

DECODE, MIDDLE = "16x4096x4096:bf16:nt", "256x6144x4096:bf16:nt"


def test_the_types_of_keyword_arguments_are_of_the_options_that_fields_state():
    assert sorted(get_type_hints(PlanOptions)) == sorted({**options_of(Plan), **options_of(Limits)})


@pytest.mark.parametrize("option", OPTIONS.values(), ids=OPTIONS)
def test_every_door_has_the_option_with_its_sentence(option):
    parameter = inspect.signature(gt.tune).parameters[option.name]
    assert (parameter.kind, parameter.annotation) == (parameter.KEYWORD_ONLY, get_type_hints(PlanOptions)[option.name])
    text = " ".join(inspect.getdoc(gt.tune).split())
    assert f" {option.name}: {option.phrase}" in text
    app: Any = get_command(commands.app)
    [command] = [each for each in app.commands["tune"].params if each.name == option.name]
    assert command.opts == [f"--{option.name.replace('_', '-')}"]
    assert command.help.lower().startswith(option.phrase.lower())
    assert option.name in KEY_NAMES
    [key] = [each for each in KEYS if each.name == option.name]
    assert key.meaning.startswith(option.phrase)


def test_tune_refuses_an_argument_that_it_has_not_and_names_the_nearest():
    with pytest.raises(gt.UsageError, match=r"^tune has no argument 'budgt'; did you mean budget\? known: problems, "):
        gt.tune(DECODE, budgt=3)  # type: ignore[call-arg]
    with pytest.raises(gt.UsageError, match=r"^tune has no argument 'devise'; did you mean device\?"):
        gt.tune(DECODE, devise="H200")  # type: ignore[call-arg]


def test_what_is_not_given_stays_as_it_is_in_the_plan():
    plan = Plan().changed(budget=3, regret=0.5, portfolio=LossLimits(0.1), pruners=("static",))
    nothing = dict.fromkeys(OPTIONS) | {"portfolio": False, "ranges": False, "pruner": (), "hold_out": ()}
    assert plan_with(plan, (), **nothing) == plan
    assert plan_with(plan, (), portfolio=True).portfolio == LossLimits(0.1)
    assert plan_with(plan, (), portfolio={"mean": 0.01}).portfolio == LossLimits(mean=0.01)


def test_what_is_given_replaces_what_the_plan_has():
    plan = Plan().changed(budget=3, regret=0.5, seconds=9)
    given = {"space": "aten", "pruner": "static", "regret": 0.25, "budget": 4, "ranges": True, "hold_out": MIDDLE}
    found = plan_with(plan, DECODE, **given)
    assert (found.spaces, found.pruners, found.budget, found.ranges) == (("aten",), ("static",), 4, RangeLimits())
    assert (found.limits, [each.name for each in found.held_out]) == (Limits(seconds=9, regret=0.25), [MIDDLE])
    assert plan_with(plan, (), portfolio=LossLimits(0.5, 0.5)).portfolio == LossLimits(0.5, 0.5)


def test_equal_problems_of_two_captures_add_their_weights_and_texts_do_not():
    one, two = Problem.parse(DECODE), Problem.parse(MIDDLE)
    plan = plan_with(Plan(), [replace(one, weight=3), two, replace(one, weight=0.5)])
    assert [(each.name, each.weight) for each in plan.problems] == [(DECODE, 3.5), (MIDDLE, 1.0)]
    with pytest.raises(UsageError, match="named 2 times"):
        plan_with(Plan(), [one, DECODE])


def test_several_campaign_files_make_one_table(tmp_path):
    for name, weight in (("decode", 3), ("prefill", 2)):
        text = f"budget = {weight}\nsampler = 'random'\n[[problem]]\nm = 16\nn = 4096\nk = 4096\nweight = {weight}"
        (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
    paths = [tmp_path / "decode.toml", tmp_path / "prefill.toml"]
    result = gt.tune(campaign=paths, backend=gt.landscapes("h200"), budget=2)
    assert [(row.problem.name, row.problem.weight) for row in result.table.rows] == [(DECODE, 5.0)]
    with pytest.raises(UsageError, match=r"decode\.toml has budget = 3, and .*prefill\.toml 2: make them equal"):
        gt.tune(campaign=paths, backend=gt.landscapes("h200"))
