"""Send the best configs of each problem to a final."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from gemmtune.engine.execution.gpu_normalization import GpuNormalization
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.final import Final, FinalNotHeld
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.scheduling.shared_work import SharedWork
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
        shared: SharedWork,
        finalists: Collection[tuple[Task, Config]] | None = None,
    ) -> None:
        """Expect the searches of these tasks to end, which are all tasks of the campaign.

        The `finalists` alone meet, where they are given.
        """
        self._executor = executor
        self._database = database
        self._objective = objective
        self._normalization = normalization
        self._shared = shared
        self._finalists = finalists
        self._elsewhere: dict[Workload, list[tuple[Task, Config]]] = {}  # candidates of finals that others hold
        self._tasks: dict[Workload, list[Task]] = {}
        for task in tasks:
            self._tasks.setdefault(task.problem, []).append(task)
        self._unfinished = {problem: set(of_problem) for problem, of_problem in self._tasks.items()}
        self._running: set[Workload] = set()

    @property
    def open(self) -> bool:
        """Whether a final was submitted and is not over."""
        return bool(self._running or self._elsewhere)

    @property
    def running(self) -> bool:
        """Whether the executor has a final."""
        return bool(self._running)

    @property
    def waits(self) -> bool:
        """Whether another driver on the database holds a final that this campaign needs."""
        return bool(self._elsewhere)

    def search_ended(self, task: Task) -> None:
        """Submit the problem's final if no other search of it is left, unless its last final had these candidates."""
        unfinished = self._unfinished[task.problem]
        unfinished.discard(task)
        if unfinished:
            return
        candidates = self._candidates(self._tasks[task.problem], self._held(task))
        if len(candidates) > 1 and not self._is_over(task, candidates):
            self._elsewhere[task.problem] = candidates
            self._take(task.problem)

    def look(self, *, take_over: bool) -> None:
        """Look for the finals of other drivers; `take_over` claims those that nobody holds any more."""
        for problem, candidates in list(self._elsewhere.items()):
            if self._is_over(candidates[0][0], candidates):
                del self._elsewhere[problem]
            elif take_over:
                self._take(problem)

    def leave(self) -> None:
        """Wait for no final of another driver."""
        self._elsewhere.clear()

    def add(self, final: Final | FinalNotHeld) -> None:
        """Store a final that came back from the executor, as the last one even if another driver's clock is ahead."""
        task = self._tasks[final.problem][0]
        self._running.discard(final.problem)
        if isinstance(final, Final):
            times = [final.created_at, *(held.created_at for held in self._held(task))]
            self._database.add_final(replace(final, created_at=max(times)))
        self._shared.release_final(final.problem, task.device)

    def _take(self, problem: Workload) -> None:
        """Submit a final, unless another driver has claimed it, or held it a moment ago."""
        task = self._tasks[problem][0]
        if not self._shared.take_final(problem, task.device):
            return
        candidates = self._elsewhere.pop(problem)
        if self._shared.is_alone or not self._is_over(task, candidates):
            self._running.add(problem)
            self._executor.hold_final(candidates)
        else:
            self._shared.release_final(problem, task.device)

    def _held(self, task: Task) -> list[Final]:
        return self._database.finals(task.problem, task.device, self._executor.protocol(task))

    def _is_over(self, task: Task, candidates: Sequence[tuple[Task, Config]]) -> bool:
        """Return whether the last final of the problem had these candidates, built by the toolchain of now."""
        finalists = {(f.task, f.config, f.toolchain) for final in self._held(task)[-1:] for f in final.finalists}
        return all((task, config, self._executor.toolchain(task)) in finalists for task, config in candidates)

    def _candidates(self, tasks: Sequence[Task], held: Sequence[Final]) -> list[tuple[Task, Config]]:
        """Return the best FINALISTS of all searched spaces and the baseline, or the finalists that were given.

        Configs that failed in a final are left out and not replaced. Otherwise each run of a campaign would hold
        another final.
        """
        baseline: list[tuple[float, Task, Config]] = []
        others: list[tuple[float, Task, Config]] = []
        for task in tasks:
            configs = None if self._finalists is None else [c for t, c in self._finalists if t == task]
            known = self._normalization.known(task, self._executor, configs)
            scored = ((self._objective.score(m), task, c) for c, m in known.items() if m.status is Status.OK)
            (baseline if task.is_baseline else others).extend(scored)
        others.sort(key=lambda scored: (scored[0], scored[1].space, scored[2].json))
        failed = {(out.task, out.config) for final in held for out in final.failed}
        most = FINALISTS if self._finalists is None else None
        best = ((task, config) for _, task, config in (*others[:most], *baseline))
        return [candidate for candidate in best if candidate not in failed]
