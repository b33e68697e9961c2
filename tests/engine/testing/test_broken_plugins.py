"""Each promise of a conformance kit refuses the plug-in that breaks it, and takes the one at its bound."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, fields, replace
from itertools import count
from threading import Lock
from typing import ClassVar

import pytest

from gemmtune.engine.records.artifact import Resources, Toolchain
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.errors import ContractError, ProblemError, TableError, ToolchainMissing
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.search import Prior
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.seams.pruner import Pruner
from gemmtune.engine.seams.space import BuildError, Space
from gemmtune.engine.search.samplers.exhaustive import ExhaustiveSampler
from gemmtune.engine.testing import (
    _contract,
    exporter_conformance,
    objective_conformance,
    pruner_conformance,
    sampler_conformance,
    space_conformance,
    workload_conformance,
)
from gemmtune.engine.testing.sampler_conformance import check_sampler
from gemmtune.engine.testing.space_conformance import check_build, example_tasks
from gemmtune.objectives.latency import Latency
from gemmtune.objectives.latency_energy import LatencyEnergy
from gemmtune.spaces.gemm.kind import Gemm


def refused(check, plugin, broken):
    with pytest.raises(ContractError, match=broken):
        check(plugin)


def answering(base, **answers):
    """Return a subclass whose methods and attributes are `answers`; a method answers with one value."""
    made = {n: (lambda *_, value=v: value) if callable(getattr(base, n, None)) else v for n, v in answers.items()}
    return type("Broken", (base,), made)


class Toy(Space):
    """Eight tiles, each of which is feasible."""

    def params(self, task):
        return (Param("TILE", (1, 2, 3, 4, 5, 6, 7, 8)),)

    def check(self, task, config):
        return Verdict.yes()

    def seeds(self, task):
        return ()

    def toolchain(self):
        return Toolchain((("toy", "1.0"),))

    def build(self, task, config, folder):
        raise BuildError("no")

    def load(self, artifact, task):
        raise NotImplementedError


class Sums(Toy):
    numbers = count()

    def summation(self, task, config):
        return str(next(Sums.numbers))


def toy(**answers):
    return answering(Toy, **answers)


def tile(*values, ordered=True):
    param = object.__new__(Param)  # the record itself refuses some of these
    for field, value in zip(fields(Param), ("TILE", values, ordered, None), strict=True):
        object.__setattr__(param, field.name, value)
    return (param,)


KIT = space_conformance
AB = (Param("A", (1, 2)), Param("B", (1, 2), where=("A", (2,))))
TWO = Config({"TILE": 2})


@pytest.mark.parametrize(
    ("answers", "check", "broken"),
    [
        ({"params": [Param("TILE", (1, 2))]}, KIT.spans_its_params, "not a tuple of Param"),
        ({"params": ("TILE",)}, KIT.spans_its_params, "not a tuple of Param"),
        ({"params": (Param("", (1, 2)),)}, KIT.spans_its_params, "no name"),
        ({"params": (Param("A", (1,)), Param("A", (2,)))}, KIT.spans_its_params, "two params of one name"),
        ({"params": tile()}, KIT.spans_its_params, "has no value"),
        ({"params": tile(1, None)}, KIT.spans_its_params, "value None is no finite number"),
        ({"params": tile(1.0, float("inf"))}, KIT.spans_its_params, "value inf is no finite number"),
        ({"params": tile(1, "a")}, KIT.spans_its_params, "not ascending"),
        ({"params": (Param("A", (1, 2), where=("B", (1,))),)}, KIT.spans_its_params, r"where=\('B', \(1,\)\); name"),
        ({"params": (Param("A", (1, 2), where=("A", (1,))),)}, KIT.spans_its_params, "name another parameter"),
        (
            {"params": (*AB, Param("C", (1, 2), where=("A", (3,))))},
            KIT.spans_its_params,
            "3, which is none of its values",
        ),
        ({"params": (*AB, Param("C", (1, 2), where=("A", 1)))}, KIT.spans_its_params, "name another parameter"),
        ({"points": ()}, KIT.has_points_of_its_params, "has no point"),
        ({"points": (TWO, TWO)}, KIT.has_points_of_its_params, "a point twice"),
        ({"points": (Config({"OTHER": 2}),)}, KIT.has_points_of_its_params, "not of its params"),
        ({"points": (Config({"TILE": 2, "OTHER": 2}),)}, KIT.has_points_of_its_params, "not of its params"),
        ({"check": Verdict("a reason", "")}, KIT.explains_every_rejection, "without a rule or a reason"),
        ({"check": Verdict("  ", "rule")}, KIT.explains_every_rejection, "without a rule or a reason"),
        ({"check": Verdict("", "rule")}, KIT.explains_every_rejection, "by the rule 'rule'"),
        ({"check": Verdict("two\nlines", "rule")}, KIT.explains_every_rejection, "more than one line"),
        ({"check": Verdict("a reason", "two\nlines")}, KIT.explains_every_rejection, "more than one line"),
        ({"seeds": [TWO]}, KIT.has_feasible_seeds, "not a tuple"),
        ({"seeds": (TWO, TWO)}, KIT.has_feasible_seeds, "a seed twice"),
        ({"seeds": (Config({"TILE": 9}),)}, KIT.has_feasible_seeds, "not of its params"),
        ({"params": AB, "points": (Config({"A": 1, "B": 2}),)}, KIT.has_points_of_its_params, "not of its params"),
        ({"params": AB, "seeds": (Config({"A": 1, "B": 2}),)}, KIT.has_feasible_seeds, "not of its params"),
        ({"features": {"waves": float("nan")}}, KIT.gives_equal_names_of_features, "the features {'waves': nan}"),
        (
            {"features": {"waves": 1.0}, "features_of": {"waves": [1.0]}},
            KIT.gives_equal_names_of_features,
            "other features together than apart",
        ),
        ({"features_of": {"waves": [1.0]}}, KIT.gives_equal_names_of_features, "other features together than apart"),
        ({"prior": None}, KIT.estimates_feasible_configs, "not a Prior"),
        ({"prior": Prior({TWO: 1.0}, "toy", "why")}, KIT.estimates_feasible_configs, "1 estimates by 'toy'"),
        ({"prior": Prior({}, "", "two\nlines")}, KIT.estimates_feasible_configs, "more than one line"),
        ({"prior": Prior({TWO: float("inf")}, "toy")}, KIT.estimates_feasible_configs, "at inf ns"),
        ({"prior": Prior({Config({"TILE": 9}): 1.0}, "toy")}, KIT.estimates_feasible_configs, "is not feasible"),
        ({"artifact_key": ""}, KIT.gives_each_config_its_key, "empty artifact key"),
        ({"toolchain": Toolchain(())}, KIT.names_its_toolchain, "without versions|does not read back"),
        ({"toolchain": Toolchain((("toy", ""),))}, KIT.names_its_toolchain, "without versions|does not read back"),
    ],
)
def test_a_space_that_breaks_its_promise_is_refused(answers, check, broken):
    refused(check, toy(**answers), broken)


def test_a_space_is_taken_with_forty_rules_and_an_accepted_point():
    class Ruled(Toy):
        most = 39

        def params(self, task):
            return (Param("TILE", tuple(range(200))),)

        def check(self, task, config):
            place = config.integer("TILE")
            return Verdict.yes() if place >= self.most else Verdict.no(f"rule {place}", "no")

    KIT.explains_every_rejection(Ruled)  # 39 and the empty one
    refused(KIT.explains_every_rejection, type("More", (Ruled,), {"most": 40}), "41 rules > 40")


@pytest.mark.parametrize("said", ["pip install toy", "it is missing"])
def test_a_missing_toolchain_says_what_to_install(said):
    class Missing(Toy):
        def toolchain(self):
            raise ToolchainMissing(said)

        def check(self, task, config):
            return Verdict.no("toolchain", said)

    KIT.explains_every_rejection(Missing)  # it may need its toolchain to accept
    if said.startswith("pip"):
        KIT.names_its_toolchain(Missing)
    else:
        refused(KIT.names_its_toolchain, Missing, "does not say what to install: it is missing")


class Built(Toy):
    """Builds one file per config; `changes` of the artifact are what a test breaks."""

    changes: ClassVar[dict] = {}

    def build(self, task, config, folder):
        from gemmtune.engine.records.artifact import Artifact

        if config.integer("TILE") > 8:
            return self.refuse(folder)
        artifact = Artifact(self.artifact_key(task, config), task.space, "", "0" * 64, (), None, 0.5, self.toolchain())
        return replace(artifact, **self.changes)

    def refuse(self, folder):
        raise BuildError("TILE is too large")


FULL = Resources(64, 232_448, 0, 1024)


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({}, None),
        ({"resources": FULL}, None),
        ({"resources": Resources(255, 0, 0, 257)}, None),
        ({"key": "other"}, "of key 'other'"),
        ({"space": "other"}, "of the space 'other'"),
        ({"toolchain": Toolchain((("toy", "2.0"),))}, "built with toy 2.0"),
        ({"build_seconds": -0.1}, "built in -0.1 s"),
        ({"build_seconds": float("inf")}, "built in inf s"),
        ({"launch": (("grid", 1), ("grid", 2))}, "a launch value twice: grid, grid"),
        ({"digest": "0" * 63}, "no SHA-256"),
        ({"resources": replace(FULL, registers=0)}, "occupies"),
        ({"resources": Resources(256, 0, 0, 32)}, "occupies"),
        ({"resources": replace(FULL, threads=0)}, "occupies"),
        ({"resources": Resources(32, 0, 0, 1025)}, "occupies"),
        ({"resources": Resources(65, 0, 0, 1024)}, "occupies"),  # more registers than an SM has
        ({"resources": replace(FULL, shared_bytes=-1)}, "occupies"),
        ({"resources": replace(FULL, shared_bytes=232_449)}, "occupies"),
        ({"resources": replace(FULL, spill_bytes=-1)}, "occupies"),
    ],
)
def test_an_artifact_is_taken_within_what_a_gpu_has(changes, broken, tmp_path):
    space = type("Building", (Built,), {"changes": changes})
    if broken is None:
        assert check_build(space, example_tasks()[0], TWO, tmp_path).digest == "0" * 64
    else:
        refused(lambda s: check_build(s, example_tasks()[0], TWO, tmp_path), space, broken)


def silent(_, folder):
    raise BuildError(" ")


def littering(_, folder):
    (folder / "left").touch()
    raise BuildError("no")


def moving(_, folder):
    import os

    os.environ["GEMMTUNE_TEST_LEFT"] = "1"
    raise BuildError("no")


@pytest.mark.parametrize(
    ("refuse", "broken"),
    [(silent, "without a reason"), (littering, "left files"), (moving, "left another environment")],
)
def test_a_refusal_has_a_reason_and_leaves_nothing(refuse, broken, tmp_path, monkeypatch):
    monkeypatch.setenv("GEMMTUNE_TEST_LEFT", "0")
    space = type("Refusing", (Built,), {"refuse": refuse})
    refused(lambda s: check_build(s, example_tasks()[0], TWO, tmp_path), space, broken)


def test_one_binary_is_described_alike_whatever_its_build_took(tmp_path):
    class Slower(Built):
        built = 0

        def build(self, task, config, folder):
            Slower.built += 1
            return replace(super().build(task, config, folder), build_seconds=float(Slower.built))

    assert check_build(Slower, example_tasks()[0], TWO, tmp_path).build_seconds == 2

    class Moody(Slower):
        def build(self, task, config, folder):
            return replace(super().build(task, config, folder), launch=(("grid", Slower.built),))

    refused(lambda s: check_build(s, example_tasks()[0], TWO, tmp_path), Moody, "one binary twice")


@pytest.mark.parametrize(
    ("value", "impossible"), [(True, True), (4, 1_000_009), (-4, 1_000_009), ("n", "no n"), (0.5, -1.5)]
)
def test_impossible_values_have_the_type_of_the_possible(value, impossible):
    assert KIT._impossible(value) == impossible


# Exporters


class Sound(Exporter):
    """Writes each row's problem and space; refuses spaces but the vendor library's."""

    def export(self, table):
        for row in table.rows:
            if row.choices[0].space != "aten":
                self.refuse(row)
        return {"table.txt": "\n".join(row.problem.name for row in table.rows)}

    def refuse(self, row):
        raise TableError(f"no space {row.choices[0].space} for {row.problem.name}")


class Generic(Exporter):
    """Writes the rows of any space."""

    def export(self, table):
        return {"table.txt": "\n".join(f"{row.problem.name} {row.choices[0].space}" for row in table.rows)}


def refusing(text):
    def refuse(_, row):
        raise TableError(text.format(space=row.choices[0].space, problem=row.problem.name))

    return type("Refusing", (Sound,), {"refuse": refuse})


KEPT = exporter_conformance


@pytest.mark.parametrize(
    ("exporter", "check", "broken"),
    [
        (answering(Sound, export={}), KEPT.writes_texts_to_plain_files, "no file for a table of"),
        (answering(Sound, export={"a.txt": "x"}), KEPT.tells_tables_apart, "a shorter table alike"),
        (answering(Sound, export={"/a.txt": "x"}), KEPT.writes_texts_to_plain_files, "plain names"),
        (answering(Sound, spaces="aten"), KEPT.refuses_an_unknown_space, "names its spaces 'aten', not a tuple"),
        (answering(Generic, spaces=("aten",)), KEPT.refuses_an_unknown_space, "exported a row of a space that"),
        (refusing("no space {space}"), KEPT.refuses_an_unknown_space, "does not name both"),
        (refusing("no space for {problem}"), KEPT.refuses_an_unknown_space, "does not name both"),
        (refusing("{space}\n{problem}"), KEPT.refuses_an_unknown_space, "longer than one line"),
    ],
)
def test_an_exporter_that_breaks_its_promise_is_refused(exporter, check, broken):
    refused(check, exporter, broken)


def test_a_sound_exporter_is_taken_and_one_that_counts_its_instances_is_not():
    for check in KEPT.CHECKS[:-1]:
        check(Sound)
    exporter_conformance.check_exporter(Generic)
    made = []

    class Counted(Sound):
        def __init__(self):
            made.append(1)
            self.number = len(made)

        def export(self, table):
            return {"table.txt": str(self.number)}

    refused(KEPT.repeats_itself, Counted, "another instance's export differs")


def test_the_example_table_is_of_the_exporters_own_problems():
    [row, *_] = KEPT.example_table().rows
    assert row.baseline == row.choices[0]
    assert (row.choices[0].low_ns, row.choices[0].time_ns, row.choices[0].high_ns) == (19_900, 20_000, 20_100)
    assert [each.problem.name for each in KEPT.example_table().rows] == [*Exporter.example_problems]


# Objectives


JUDGED = objective_conformance


@pytest.mark.parametrize(
    ("objective", "check", "broken"),
    [
        (answering(Latency, unit=" "), JUDGED.names_its_protocol_and_unit, "has the unit ' '"),
        (answering(Latency, unit=None), JUDGED.names_its_protocol_and_unit, "has the unit None"),
        (answering(Latency, score="fast"), JUDGED.scores_successes, "not a number"),
        (answering(Latency, score=True), JUDGED.scores_successes, "not a number"),
        (answering(Latency, score=0.0), JUDGED.scores_successes, "with 0.0"),
        (answering(Latency, score=float("inf")), JUDGED.scores_successes, "with inf"),
        (answering(LatencyEnergy, scores=(1.0, float("inf"))), JUDGED.scores_every_part, "gave the scores"),
    ],
)
def test_an_objective_that_breaks_its_promise_is_refused(objective, check, broken):
    refused(check, objective, broken)


def test_an_objective_that_fails_for_one_sample_is_refused():
    class Impatient(Latency):
        def score(self, measurement):
            return super().score(measurement) if len(measurement.samples_ns) > 1 else 0.0

    class Clipped(Latency):
        def score(self, measurement):
            return min(super().score(measurement), 1e9) if measurement.estimate.time_ns < 1.05e9 else 0.0

    for objective in (Impatient, Clipped):
        refused(JUDGED.scores_successes, objective, "scored .* with 0.0")


def test_the_example_measurement_has_the_power_of_its_time():
    short, long = (objective_conformance.example_measurement((time, time)) for time in (1e5, 2e5))
    assert long.energy_joules == pytest.approx(2 * short.energy_joules)
    assert (short.estimate.time_ns, short.estimate.low_ns, short.estimate.high_ns) == (1e5, 1e5, 1e5)


# Pruners


class Keeps(Pruner):
    def judge(self, candidate, history):
        return Verdict.yes()


class Forgets(Keeps):
    def judge(self, candidate, history):
        history[:1] = []
        return Verdict.yes()


class Nods(Keeps):
    def judge(self, candidate, history):
        return True


class PerInstance(Keeps):
    made = 0

    def __init__(self):
        PerInstance.made += 1
        self.number = PerInstance.made

    def judge(self, candidate, history):
        return Verdict.no("number", str(self.number)) if history else Verdict.yes()


class WithoutRuleOnFailures(Keeps):
    def judge(self, candidate, history):
        nothing_works = history and all(each.samples_ns == () for each in history)
        return Verdict(reason="nothing works") if nothing_works else Verdict.yes()


class DropsTheVendor(Keeps):
    def judge(self, candidate, history):
        return Verdict.no("vendor", "it has no params") if candidate.artifact else Verdict.yes()


class TwoLines(Keeps):
    def judge(self, candidate, history):
        return Verdict.no("lines", "one\ntwo") if history else Verdict.yes()


class HashedRule(Keeps):
    def judge(self, candidate, history):
        return Verdict.no(f"rule {hash('a text') % 1000}", "a reason") if history else Verdict.yes()


@pytest.mark.parametrize(
    ("pruner", "check", "broken"),
    [
        (TwoLines, pruner_conformance.gives_every_no_its_reason, "more than one line"),
        (HashedRule, pruner_conformance.judges_by_the_evidence_alone, "with another PYTHONHASHSEED"),
        (Forgets, pruner_conformance.leaves_the_history_alone, "changed the history"),
        (Nods, pruner_conformance.keeps_without_evidence, "not a Verdict"),
        (PerInstance, pruner_conformance.judges_by_the_evidence_alone, "differently"),
        (WithoutRuleOnFailures, pruner_conformance.gives_every_no_its_reason, "no rule for 'nothing works'"),
        (DropsTheVendor, pruner_conformance.keeps_without_evidence, "it has no params"),
    ],
)
def test_a_pruner_that_breaks_its_promise_is_refused(pruner, check, broken):
    refused(check, pruner, broken)


# Samplers


SEARCHED = sampler_conformance


class StopsEarly(ExhaustiveSampler):
    def ask(self, count):
        return super().ask(count) if len(self._left) > 1 else []


class NeedsSeeds(ExhaustiveSampler):
    def ask(self, count):
        return super().ask(count) if self.search.seeds else []


class FearsFailures(ExhaustiveSampler):
    broken = False

    def tell(self, trials):
        self.broken |= all(trial.score is None for trial in trials)
        super().tell(trials)

    def ask(self, count):
        return [] if self.broken else super().ask(count)


class FearsStrings(ExhaustiveSampler):
    def ask(self, count):
        return super().ask(count) if any(param.ordered for param in self.search.params) else []


class Impulsive(ExhaustiveSampler):
    """Begins elsewhere in each second instance, but never where the search is asked from its start."""

    made: ClassVar = OrderedDict()

    def __init__(self, search):
        super().__init__(search)
        self.number = self.made[search.objectives] = self.made.get(search.objectives, 0) + 1
        self.asked = 0

    def ask(self, count):
        batch = super().ask(count)
        self.asked += len(batch)
        return batch[::-1] if self.number % 2 and self.asked > 16 else batch


class TwoAtOnce(Impulsive):
    multi_objective = True

    def ask(self, count):
        batch = ExhaustiveSampler.ask(self, count)
        return batch[::-1] if self.number % 2 and self.search.objectives == 2 else batch


class Historic(Impulsive):
    learns = True

    def ask(self, count):
        batch = ExhaustiveSampler.ask(self, count)
        return batch[::-1] if self.number % 2 and self.search.history else batch


class Backwards(Impulsive):
    def ask(self, count):
        batch = ExhaustiveSampler.ask(self, count)
        return batch[::-1] if self.number % 2 else batch


class Hashed(ExhaustiveSampler):
    def __init__(self, search):
        super().__init__(replace(search, feasible=tuple(set(search.feasible))))
        self.search = search


class Alone(ExhaustiveSampler):
    def __init__(self, search):
        self._left = list(search.feasible)


class AnswersDicts(ExhaustiveSampler):
    def ask(self, count):
        return [dict(config) for config in super().ask(count)]


class Exits(ExhaustiveSampler):
    def tell(self, trials):
        raise SystemExit(3)


class Divides(ExhaustiveSampler):
    def tell(self, trials):
        return 1 / 0


@pytest.mark.parametrize(
    ("sampler", "check", "broken"),
    [
        (Backwards, SEARCHED.resumes_from_a_database, "asked .* where .* is recorded"),
        (Backwards, SEARCHED.repeats_itself_here, "another sequence in a second run of the same search"),
        (Hashed, SEARCHED.repeats_itself_elsewhere, "another sequence in a fresh process, with another PYTHONHASHSEED"),
        (Alone, check_sampler, r"Alone does not call super\(\).__init__\(search\)"),
        (AnswersDicts, check_sampler, r"returned \[{'kind': .* from ask, not a list of configs"),
        (Divides, check_sampler, r"raised ZeroDivisionError: .* \(.*, line \d+\); the suite checked that a sampler"),
        (Exits, check_sampler, r"raised SystemExit: 3 \(.*; the suite checked that a sampler"),
        (OrderedDict, check_sampler, "OrderedDict'> is not a class derived from Sampler"),
        (StopsEarly, SEARCHED.exhausts_the_feasible_set, "asked nothing, 1 configs are left"),
        (NeedsSeeds, SEARCHED.searches_without_seeds, "asked nothing, 28 configs are left"),
        (FearsFailures, SEARCHED.survives_failures_and_ties, "asked nothing"),
        (FearsStrings, SEARCHED.searches_small_spaces, "asked nothing, 14 configs are left"),
        (Impulsive, SEARCHED.resumes_from_a_database, "other configs after it was resumed|where .* is recorded"),
        (TwoAtOnce, SEARCHED.searches_two_objectives, "second run of two objectives"),
        (Historic, SEARCHED.learns_from_a_history, "second run with a history"),
    ],
)
def test_a_sampler_that_breaks_its_promise_is_refused(sampler, check, broken):
    refused(check, sampler, broken)


def test_names_of_features_that_differ_are_refused():
    class Names(Toy):
        def features(self, task, config):
            return {f"tile{config['TILE']}": 1.0}

    refused(KIT.gives_equal_names_of_features, Names, r"the features \['tile\d'\], and other configs \['tile\d'\]")


def test_a_summation_that_differs_from_call_to_call_is_refused():
    refused(KIT.is_stateless, Sums, "describes a task differently")


def test_a_class_that_no_module_has_is_compared_with_a_fresh_process_too():
    class Here(Hashed):
        """A class as a notebook's cell makes one."""

    refused(SEARCHED.repeats_itself_elsewhere, Here, "another sequence in a fresh process")
    with pytest.warns(UserWarning, match=r"Locked is not compared with a fresh process \(TypeError: .*: move it into"):
        check_sampler(type("Locked", (Here,), {"__module__": "__main__", "lock": Lock()}))


def test_a_sampler_of_one_objective_without_a_history_is_not_asked_for_more():
    for check in (SEARCHED.searches_two_objectives, SEARCHED.learns_from_a_history):
        check(Impulsive)


def test_the_example_search_has_its_28_configs_and_outcomes():
    search = SEARCHED.example_search()
    assert len(search.feasible) == 28
    assert search.seeds == (search.feasible[20], search.feasible[3])
    best = min(search.feasible, key=lambda config: SEARCHED._bowl(config).score)
    assert dict(best) == {"tile": 64, "stages": 4, "kind": "t", "warps": 4}
    assert SEARCHED._bowl(best).score == 1e4
    assert SEARCHED._two(best).scores == (1e4, 1 / 64)
    failed = [SEARCHED._with_failures(SEARCHED._bowl(config)).score is None for config in search.feasible]
    assert failed == [config.integer("tile") >= 64 for config in search.feasible]


# Workloads


@dataclass(frozen=True)
class Bad(Problem):
    """A GEMM with wrong answers for its properties."""

    kind: ClassVar[str] = "gemm"


def bad(**answers):
    made = {n: property(lambda *_, value=v: value) for n, v in answers.items()}
    return type("Bad", (Bad,), made)(16, 32, 48)


WORKED = workload_conformance


@pytest.mark.parametrize(
    ("answers", "check", "broken"),
    [
        ({"name": "16/32"}, WORKED.is_named_for_its_kind, "a space or a slash in its name '16/32'"),
        ({"name": "16\t32"}, WORKED.is_named_for_its_kind, "a space or a slash"),
        ({"kind": "toy", "name": "16x32x48"}, WORKED.is_named_for_its_kind, "'16x32x48' without its kind"),
        ({"name": "17x32x48:bf16:nt"}, WORKED.is_named_for_its_kind, "as another workload"),
        ({"sizes": {"m": 0}}, WORKED.has_sizes_and_amounts, "has sizes"),
        ({"sizes": {"m": 1.0}}, WORKED.has_sizes_and_amounts, "has sizes"),
        ({"traits": {"bits": 16}}, WORKED.has_sizes_and_amounts, "has traits"),
        ({"flops": -1}, WORKED.has_sizes_and_amounts, "below 0"),
        ({"min_bytes": -1}, WORKED.has_sizes_and_amounts, "below 0"),
        ({"family": Problem(1, 2, 1)}, WORKED.has_sizes_and_amounts, "a family with the sizes"),
        ({"family": Problem(1, 1, 1, weight=2.0)}, WORKED.has_sizes_and_amounts, "not of its own family"),
        ({"range_size": "", "size": 2}, WORKED.spans_its_range_size, "no range size"),
        ({"range_size": "", "series": Problem(1, 32, 48)}, WORKED.spans_its_range_size, "no range size"),
        ({"size": 15}, WORKED.spans_its_range_size, "no size m"),
        ({"range_size": "x", "size": 5}, WORKED.spans_its_range_size, "no size x"),
        ({"series": Problem(2, 32, 48)}, WORKED.spans_its_range_size, "another series|not 1"),
    ],
)
def test_a_workload_that_breaks_its_promise_is_refused(answers, check, broken):
    refused(check, bad(**answers), broken)


def test_a_workload_without_operations_or_bytes_is_taken():
    WORKED.has_sizes_and_amounts(bad(flops=0, min_bytes=0))


@pytest.mark.parametrize(
    ("resized", "broken"),
    [
        (Problem(17, 33, 48, weight=3.0), r"changes \['m', 'n'\]"),
        (Problem(16, 32, 48, weight=3.0), r"changes \[\]"),
        (Problem(18, 32, 48, weight=3.0), r"changes \['m'\]"),
        (Problem(17, 32, 48), "another series"),
    ],
)
def test_a_resized_workload_differs_in_its_range_size_alone(resized, broken):
    made = type("Bad", (Bad,), {"resized": lambda *_: resized, "series": property(lambda _: resized.series)})
    refused(WORKED.spans_its_range_size, made(16, 32, 48), broken)


@pytest.mark.parametrize(
    ("given", "broken"),
    [
        (None, "a field that it does not know"),
        (ProblemError("a field is unknown"), "without naming it: a field is unknown"),
        (ProblemError("no field no_such_field"), None),
    ],
)
def test_an_unknown_field_is_refused_by_its_name(monkeypatch, given, broken):
    problem = Problem(16, 32, 48)

    def workload_of(fields):
        if "no_such_field" in fields and given is not None:
            raise given
        return problem

    monkeypatch.setattr(WORKED, "workload_of", workload_of)
    if broken is None:
        WORKED.keeps_its_fields(problem)
    else:
        refused(WORKED.keeps_its_fields, problem, broken)


def test_fields_are_texts_that_give_the_workload_back(monkeypatch):
    problem = Problem(16, 32, 48)
    monkeypatch.setattr(WORKED, "fields_of", lambda _: {"m": 16})
    refused(WORKED.keeps_its_fields, problem, "a field that is no text")
    monkeypatch.setattr(WORKED, "fields_of", lambda _: {"m": "17", "n": "32", "k": "48"})
    refused(WORKED.keeps_its_fields, problem, "another workload after its fields")


SOUND = {name: getattr(Gemm, name) for name in ("operands", "expected")}
MOODS = count(1)


def moody(self, workload, source, number):
    made = SOUND["operands"](self, workload, source, number)
    return replace(made, a=made.a + next(MOODS))


def without(self, workload, source, number):
    return replace(SOUND["operands"](self, workload, source, number), outputs=())


def wider(self, workload, operands):
    return tuple(replace(each, values=each.values[:1]) for each in SOUND["expected"](self, workload, operands))


def doubled(self, workload, operands):
    return tuple(replace(each, values=each.values * 2) for each in SOUND["expected"](self, workload, operands))


@pytest.mark.parametrize(
    ("name", "method", "broken"),
    [
        ("operands", moody, "other values in one operand set made twice"),
        ("operands", without, "has no output"),
        ("expected", wider, "another shape"),
    ],
)
def test_operands_that_break_their_promise_are_refused(monkeypatch, name, method, broken):
    pytest.importorskip("torch", reason="torch is not installed")
    monkeypatch.setattr(Gemm, name, method)
    refused(WORKED.check_operands, Problem(4, 8, 16), broken)


def test_operand_sets_share_no_memory(monkeypatch):
    pytest.importorskip("torch", reason="torch is not installed")
    made = []

    def one_set(self, workload, source, number):
        made.append(SOUND["operands"](self, workload, source, 0))
        return made[0] if number else made[-1]

    monkeypatch.setattr(Gemm, "operands", one_set)
    refused(WORKED.check_operands, Problem(4, 8, 16), "shares memory")


def test_a_kind_is_timed_beside_a_gemm(monkeypatch):
    pytest.importorskip("torch", reason="torch is not installed")
    beside = type("Other", (Bad,), {"kind": "toy"})(4, 8, 16)
    monkeypatch.setattr(Gemm, "timed_beside", lambda *_: beside)
    refused(WORKED.check_operands, Problem(4, 8, 16), "which is no GEMM")


# The contract itself


def test_a_broken_promise_names_the_plugin_and_a_kept_one_says_nothing():
    _contract.require(True, Toy, "broke it")
    refused(lambda plugin: _contract.require(False, plugin, "broke it"), Toy, f"{__name__}.Toy broke it")


@pytest.mark.parametrize(
    ("line", "broken"),
    [
        ("", None),
        ("print('a line of its own')", None),
        ("import json as torch; sys.modules['torch'] = torch", r"imported \['torch'\]"),
        ("open('left', 'w').close()", r"left \['left'\] in the working"),
        ("raise SystemExit('it broke')", "fails in a fresh process: it broke"),
        ("Plugin.answer = 'other'", "answers differently"),
    ],
)
def test_a_fresh_process_gives_the_same_answer_and_nothing_more(tmp_path, monkeypatch, line, broken):
    module = "import sys\nclass Plugin:\n    answer = 'one'\ndef ask(plugin):\n    return plugin.answer\n"
    (tmp_path / "toy_plugin.py").write_text(
        module + "if 'json' in sys.modules and 'pytest' not in sys.modules:\n    " + (line or "pass")
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    import toy_plugin

    monkeypatch.delitem(__import__("sys").modules, "toy_plugin")
    if broken is None:
        _contract.require_lightness(toy_plugin.ask, toy_plugin.Plugin)
    else:
        refused(lambda plugin: _contract.require_lightness(toy_plugin.ask, plugin), toy_plugin.Plugin, broken)
