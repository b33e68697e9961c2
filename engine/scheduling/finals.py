"""Send the best configs of each problem to a final."""

from collections.abc import Iterable, Sequence

from gemmtune.engine.execution.gpu_normalization import GpuNormalization
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.final import Final, FinalNotHeld
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams.executor import FINALISTS, Executor
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.store.database import Database


class Finals:
    """The finals of a campaign: a problem's best configs meet once every search of the problem has ended."""

    def __init__(
        self,
        tasks: Iterable[Task],
        executor: Executor,
        database: Database,
        objective: Objective,
        normalization: GpuNormalization,
    ) -> None:
        """Expect the searches of these tasks to end, which are all tasks of the campaign."""
        self._executor = executor
        self._database = database
        self._objective = objective
        self._normalization = normalization
        self._tasks: dict[Workload, list[Task]] = {}
        for task in tasks:
            self._tasks.setdefault(task.problem, []).append(task)
        self._unfinished = {problem: set(of_problem) for problem, of_problem in self._tasks.items()}
        self._running: set[Workload] = set()

    @property
    def open(self) -> bool:
        """Whether a final was submitted and is not over."""
        return bool(self._running)

    def search_ended(self, task: Task) -> None:
        """Submit the problem's final if no other search of it is left, unless its last final had these candidates."""
        unfinished = self._unfinished[task.problem]
        unfinished.discard(task)
        if unfinished:
            return
        held = self._database.finals(task.problem, task.device, self._executor.protocol(task))
        candidates = self._candidates(self._tasks[task.problem], held)
        if len(candidates) > 1 and not (held and self._were_held(candidates, held[-1])):
            self._running.add(task.problem)
            self._executor.hold_final(candidates)

    def add(self, final: Final | FinalNotHeld) -> None:
        """Store a final that came back from the executor."""
        self._running.discard(final.problem)
        if isinstance(final, Final):
            self._database.add_final(final)

    def _candidates(self, tasks: Sequence[Task], held: Sequence[Final]) -> list[tuple[Task, Config]]:
        """Return the best FINALISTS of all searched spaces, and the baseline.

        Configs that failed in a final are left out and not replaced. Otherwise each run of a campaign would hold
        another final.
        """
        baseline: list[tuple[float, Task, Config]] = []
        others: list[tuple[float, Task, Config]] = []
        for task in tasks:
            known = self._normalization.known(task, self._executor)
            scored = ((self._objective.score(m), task, c) for c, m in known.items() if m.status is Status.OK)
            (baseline if task.is_baseline else others).extend(scored)
        others.sort(key=lambda scored: (scored[0], scored[1].space, scored[2].json))
        failed = {(out.task, out.config) for final in held for out in final.failed}
        best = ((task, config) for _, task, config in (*others[:FINALISTS], *baseline))
        return [candidate for candidate in best if candidate not in failed]

    def _were_held(self, candidates: Iterable[tuple[Task, Config]], final: Final) -> bool:
        """Return whether the final had all candidates, built by the toolchain of now."""
        finalists = {(f.task, f.config, f.toolchain) for f in final.finalists}
        return all((task, config, self._executor.toolchain(task)) in finalists for task, config in candidates)
