"""Each option of a plan is at every door: gt.tune, the command line, the campaign file."""

from __future__ import annotations

import inspect
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


def test_what_is_given_replaces_what_the_plan_has():
    plan = Plan().changed(budget=3, regret=0.5, seconds=9)
    given = {"space": "aten", "pruner": "static", "regret": 0.25, "budget": 4, "ranges": True, "hold_out": MIDDLE}
    found = plan_with(plan, DECODE, **given)
    assert (found.spaces, found.pruners, found.budget, found.ranges) == (("aten",), ("static",), 4, RangeLimits())
    assert (found.limits, [each.name for each in found.held_out]) == (Limits(seconds=9, regret=0.25), [MIDDLE])
    assert plan_with(plan, (), portfolio=LossLimits(0.5, 0.5)).portfolio == LossLimits(0.5, 0.5)
