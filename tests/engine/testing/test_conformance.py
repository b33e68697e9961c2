from __future__ import annotations

import subprocess
import sys

import pytest

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import ContractError
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.pruner import Pruner
from gemmtune.engine.search.samplers.exhaustive import ExhaustiveSampler
from gemmtune.testing import check_pruner, check_sampler


class Repeats(ExhaustiveSampler):
    def ask(self, count):
        return list(self.search.feasible[:count])


class Invents(ExhaustiveSampler):
    def ask(self, count):
        return [Config({"tile": 7})]


class Overdoes(ExhaustiveSampler):
    def ask(self, count):
        return super().ask(count + 1)


class GivesUp(ExhaustiveSampler):
    def ask(self, count):
        return super().ask(count) if len(self._left) > len(self.search.feasible) - 10 else []


class DependsOnEarlierSearches(ExhaustiveSampler):
    started = 0

    def __init__(self, search):
        super().__init__(search)
        DependsOnEarlierSearches.started += 1
        self._turned = DependsOnEarlierSearches.started

    def ask(self, count):
        batch = super().ask(count)
        return batch[::-1] if self._turned % 2 else batch


class DropsBlindly(Pruner):
    def judge(self, candidate, history):
        return Verdict.no("guess", "it looks slow")


class KeepsAll(Pruner):
    def judge(self, candidate, history):
        return Verdict.yes()


class DropsWithoutRule(Pruner):
    def judge(self, candidate, history):
        resources = candidate.artifact.resources if candidate.artifact else None
        return Verdict.yes() if resources is None else Verdict(reason="no")


class DropsEverySecond(Pruner):
    def __init__(self):
        self.judged = 0

    def judge(self, candidate, history):
        self.judged += 1
        return Verdict.no("turn", "2 of 2") if self.judged > 2 else Verdict.yes()


@pytest.mark.parametrize(
    ("sampler", "broken"),
    [
        (Repeats, "Repeats asked .* again"),
        (Invents, "Invents asked .* which is not feasible"),
        (Overdoes, "Overdoes asked 2 configs where 1 were asked for"),
        (DependsOnEarlierSearches, "DependsOnEarlierSearches asked another sequence in a second run"),
        (GivesUp, "GivesUp asked nothing, .* configs are left"),
    ],
)
def test_a_broken_sampler_is_refused_with_the_promise_it_broke(sampler, broken):
    with pytest.raises(ContractError, match=broken):
        check_sampler(sampler)


@pytest.mark.parametrize(
    ("pruner", "broken"),
    [
        (DropsBlindly, "DropsBlindly dropped a candidate without evidence: it looks slow"),
        (DropsWithoutRule, "DropsWithoutRule gave no rule for 'no'"),
        (DropsEverySecond, "DropsEverySecond judged the same evidence differently"),
    ],
)
def test_a_broken_pruner_is_refused_with_the_promise_it_broke(pruner, broken):
    with pytest.raises(ContractError, match=broken):
        check_pruner(pruner)


def test_sound_plugins_pass():
    check_sampler(ExhaustiveSampler)
    check_pruner(KeepsAll)


def test_conformance_checks_need_neither_pytest_nor_heavy_packages():
    script = (
        "import sys\n"
        "sys.modules['pytest'] = None\n"
        "import gemmtune.testing\n"
        "print([name for name in ('torch', 'triton', 'optuna') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"
