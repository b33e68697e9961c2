"""Conformance checks for pruners, which need only the pruner's class."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Artifact, Resources, Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import ContractError
from gemmtune.engine.records.measurement import Estimate, Evidence, Measurement, Status
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.pruner import Candidate, Pruner
from gemmtune.engine.testing._contract import require

__all__ = ["CHECKS", "check_pruner"]

_TASK = Task(
    Problem(m=2048, n=4096, k=4096),
    catalogue.device("H200"),
    "example",
)
_TOOLCHAIN = Toolchain((("example", "1.0"),))


def check_pruner(pruner: type[Pruner]) -> None:
    """Judge candidates with and without evidence, and check verdicts, reasons and statelessness.

    Example:
        >>> from gemmtune.engine.search.pruners.static_pruner import StaticPruner
        >>> check_pruner(StaticPruner)

    Raises:
        ContractError: the pruner broke its contract; the message says how.
    """
    for check in CHECKS:
        check(pruner)


def keeps_without_evidence(pruner: type[Pruner]) -> None:
    """Check that a config without evidence is kept at the start of a search."""
    verdict = _judge(pruner(), Candidate(_TASK, Config({"tile": 64})), [])
    require(bool(verdict), pruner, f"dropped a candidate without evidence: {verdict.reason}")


def keeps_a_vendor_kernel(pruner: type[Pruner]) -> None:
    """Check that an artifact without resources and file, such as the vendor library's, is kept."""
    verdict = _judge(pruner(), Candidate(_TASK, Config({}), _artifact(None)), [])
    require(bool(verdict), pruner, f"dropped a vendor kernel without evidence: {verdict.reason}")


def survives_a_history_of_failures(pruner: type[Pruner]) -> None:
    """Check that candidates can be judged when the history holds only failures."""
    failures = [_measurement(i, status) for i, status in enumerate(Status) if status is not Status.OK]
    for candidate in _candidates():
        _judge(pruner(), candidate, failures)


def gives_every_no_its_reason(pruner: type[Pruner]) -> None:
    """Check that every rejection has a rule, whatever the evidence."""
    for candidate in _candidates():
        verdict = _judge(pruner(), candidate, _history())
        require(bool(verdict) or bool(verdict.rule), pruner, f"gave no rule for {verdict.reason!r}")


def judges_by_the_evidence_alone(pruner: type[Pruner]) -> None:
    """Check that equal evidence gives equal verdicts: repeated, in another order, and from another instance."""
    candidates, history, one = _candidates(), _history(), pruner()
    first = [_judge(one, candidate, history) for candidate in candidates]
    second = [_judge(one, candidate, history) for candidate in reversed(candidates)][::-1]
    fresh = [_judge(pruner(), candidate, history) for candidate in candidates]
    require(first == second == fresh, pruner, "judged the same evidence differently")


def leaves_the_history_alone(pruner: type[Pruner]) -> None:
    """Check that judging does not change the history."""
    history = _history()
    for candidate in _candidates():
        _judge(pruner(), candidate, history)
    require(history == _history(), pruner, "changed the history it was given")


CHECKS: tuple[Callable[[type[Pruner]], None], ...] = (
    keeps_without_evidence,
    keeps_a_vendor_kernel,
    survives_a_history_of_failures,
    gives_every_no_its_reason,
    judges_by_the_evidence_alone,
    leaves_the_history_alone,
)
"""Checks that `check_pruner` runs, in order."""


def _judge(pruner: Pruner, candidate: Candidate, history: Sequence[Measurement]) -> Verdict:
    verdict: object = pruner.judge(candidate, history)
    if not isinstance(verdict, Verdict):
        raise ContractError(f"pruner {type(pruner).__qualname__} returned {verdict!r}, not a Verdict")
    return verdict


def _candidates() -> list[Candidate]:
    """Return candidates before the build, built with few and with many resources, and with fast and slow launches."""
    small, large = Resources(64, 16_384, 0, 128), Resources(255, 232_448, 4096, 1024)
    configs = [Config({"tile": 2**i}) for i in range(5)]
    return [
        Candidate(_TASK, configs[0]),
        Candidate(_TASK, configs[1], _artifact(small)),
        Candidate(_TASK, configs[2], _artifact(large)),
        Candidate(_TASK, configs[3], _artifact(small), (9e4, 9.1e4)),
        Candidate(_TASK, configs[4], _artifact(small), (9e7, 9.1e7)),
    ]


def _history() -> list[Measurement]:
    return [_measurement(i, status) for i, status in enumerate([Status.OK, *Status])]


def _measurement(number: int, status: Status) -> Measurement:
    ok = status is Status.OK
    low_ns, high_ns = 1e5 + number, 1.01e5 + number
    return Measurement(
        task=_TASK,
        config=Config({"tile": 1000 + number}),
        status=status,
        evidence=Evidence.MEASURED,
        protocol="example",
        toolchain=_TOOLCHAIN,
        worker="example",
        created_at="2026-01-01T00:00:00+00:00",
        reason="" if ok else "an example of a failure",
        samples_ns=(low_ns, high_ns) if ok else (),
        estimate=Estimate((low_ns + high_ns) / 2, low_ns, high_ns) if ok else None,
    )


def _artifact(resources: Resources | None) -> Artifact:
    return Artifact("example", "example", "", "0" * 16, (), resources, 0.5, _TOOLCHAIN)
