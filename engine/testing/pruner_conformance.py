"""Conformance checks for pruners, which need only the pruner's class."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from gemmtune.engine.records.artifact import Artifact, Resources
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Measurement, Status
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.pruner import Candidate, Pruner
from gemmtune.engine.testing._contract import require, require_repeat, run_checks
from gemmtune.engine.testing.objective_conformance import example_failure, example_measurement

_TASK = example_measurement().task


def check_pruner(pruner: type[Pruner]) -> None:
    """Judge candidates with and without evidence, and check verdicts, reasons and statelessness.

    Example:
        >>> from gemmtune.engine.search.pruners.static_pruner import StaticPruner
        >>> check_pruner(StaticPruner)

    Raises:
        ContractError: the pruner broke its contract; the message says how.
    """
    run_checks(CHECKS, pruner, Pruner)


def keeps_without_evidence(pruner: type[Pruner]) -> None:
    """Check that a config without evidence is kept at the start of a search, before its build and a vendor's kernel."""
    for candidate in (Candidate(_TASK, Config({"tile": 64})), Candidate(_TASK, Config({}), _artifact(None))):
        verdict = _judge(pruner(), candidate, [])
        require(bool(verdict), pruner, f"dropped a candidate without evidence: {verdict.reason}")


def gives_every_no_its_reason(pruner: type[Pruner]) -> None:
    """Check that every rejection has a rule, whatever the evidence, and if the history holds only failures."""
    failures = [measurement for measurement in _history() if measurement.status is not Status.OK]
    for history in (_history(), failures):
        for candidate in _candidates():
            verdict = _judge(pruner(), candidate, history)
            require(bool(verdict) or bool(verdict.rule), pruner, f"gave no rule for {verdict.reason!r}")
            require("\n" not in verdict.rule + verdict.reason, pruner, f"gave more than one line: {verdict.reason!r}")


def judges_by_the_evidence_alone(pruner: type[Pruner]) -> None:
    """Check that equal evidence gives equal verdicts: repeated, reordered, from another instance, and elsewhere."""
    candidates, history, one = _candidates(), _history(), pruner()
    first = [_judge(one, candidate, history) for candidate in candidates]
    second = [_judge(one, candidate, history) for candidate in reversed(candidates)][::-1]
    fresh = [_judge(pruner(), candidate, history) for candidate in candidates]
    require(first == second == fresh, pruner, "judged the same evidence differently")
    require_repeat(_verdicts, pruner, "judged the same evidence differently with another PYTHONHASHSEED")


def leaves_the_history_alone(pruner: type[Pruner]) -> None:
    """Check that judging does not change the history."""
    history = _history()
    for candidate in _candidates():
        _judge(pruner(), candidate, history)
    require(history == _history(), pruner, "changed the history it was given")


CHECKS: tuple[Callable[[type[Pruner]], None], ...] = (
    keeps_without_evidence,
    gives_every_no_its_reason,
    judges_by_the_evidence_alone,
    leaves_the_history_alone,
)
"""Checks that `check_pruner` runs, in order."""


def _judge(pruner: Pruner, candidate: Candidate, history: Sequence[Measurement]) -> Verdict:
    verdict = pruner.judge(candidate, history)
    require(isinstance(verdict, Verdict), type(pruner), f"returned {verdict!r}, not a Verdict")
    return verdict


def _verdicts(pruner: type[Pruner]) -> str:
    return repr([pruner().judge(candidate, _history()) for candidate in _candidates()])


def _candidates() -> list[Candidate]:
    """Return candidates before the build, and built with few and with many resources."""
    small, large = Resources(64, 16_384, 0, 128), Resources(255, 232_448, 4096, 1024)
    configs = [Config({"tile": 2**i}) for i in range(3)]
    return [
        Candidate(_TASK, configs[0]),
        Candidate(_TASK, configs[1], _artifact(small)),
        Candidate(_TASK, configs[2], _artifact(large)),
    ]


def _history() -> list[Measurement]:
    return [_measurement(i, status) for i, status in enumerate([Status.OK, *Status])]


def _measurement(number: int, status: Status) -> Measurement:
    success = example_measurement((1e5 + number, 1.01e5 + number))
    measurement = success if status is Status.OK else example_failure(status)
    return replace(measurement, config=Config({"tile": 1000 + number}))


def _artifact(resources: Resources | None) -> Artifact:
    return Artifact("example", "example", "", "0" * 16, (), resources, 0.5, example_measurement().toolchain)
