"""Which configs meet in each problem's final, and when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gemmtune.engine.execution.gpu_normalization import GpuNormalization
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.final import Final, FinalNotHeld
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import BASELINE_SPACE, Task
from gemmtune.engine.seams.executor import FINALISTS, Executor
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.store.database import Database

__all__ = ["Finals"]


class Finals:
    """Sends the best of a problem to its final once every search of the problem has ended."""

    def __init__(
        self,
        tasks: Iterable[Task],
        executor: Executor,
        database: Database,
        objective: Objective,
        normalization: GpuNormalization,
    ) -> None:
        """Every task whose search will end, and the scale on which several GPUs' measurements compare."""
        self._executor = executor
        self._database = database
        self._objective = objective
        self._normalization = normalization
        self._tasks: dict[Problem, list[Task]] = {}
        for task in tasks:
            self._tasks.setdefault(task.problem, []).append(task)
        self._searched = {problem: set(of_problem) for problem, of_problem in self._tasks.items()}
        self._open: set[Problem] = set()

    @property
    def open(self) -> bool:
        """Whether a final has been sent and is not over."""
        return bool(self._open)

    def ended(self, task: Task) -> None:
        """A search is done; the last one of its problem starts the final, unless the last final was that very one."""
        searched = self._searched[task.problem]
        searched.discard(task)
        if searched:
            return
        held = self._database.finals(task.problem, task.device, self._executor.protocol(task))
        candidates = self._candidates(self._tasks[task.problem], held)
        if len(candidates) > 1 and not (held and self._met(candidates, held[-1])):
            self._open.add(task.problem)
            self._executor.hold_final(candidates)

    def over(self, final: Final | FinalNotHeld) -> None:
        """A final came back."""
        self._open.discard(final.problem)
        if isinstance(final, Final):
            self._database.add_final(final)

    def _candidates(self, tasks: Sequence[Task], held: Sequence[Final]) -> list[tuple[Task, Config]]:
        """The best FINALISTS that the database holds of all searched spaces, and the baseline.

        Those that a final has refuted are left out and not replaced, or each run of a campaign would hold one more.
        """
        baseline: list[tuple[float, Task, Config]] = []
        others: list[tuple[float, Task, Config]] = []
        for task in tasks:
            known = self._normalization.known(task, self._executor)
            scored = ((self._objective.score(m), task, c) for c, m in known.items() if m.status is Status.OK)
            (baseline if task.space == BASELINE_SPACE else others).extend(scored)
        others.sort(key=lambda scored: (scored[0], scored[1].space, scored[2].json))
        refuted = {(out.task, out.config) for final in held for out in final.failed}
        best = ((task, config) for _, task, config in (*others[:FINALISTS], *baseline))
        return [candidate for candidate in best if candidate not in refuted]

    def _met(self, candidates: Iterable[tuple[Task, Config]], final: Final) -> bool:
        met = {(f.task, f.config, f.toolchain) for f in final.finalists}
        return all((task, config, self._executor.toolchain(task)) in met for task, config in candidates)
