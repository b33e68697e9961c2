"""What the tasks of a running campaign teach each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from gemmtune.engine.records.search import Past
from gemmtune.engine.records.task import Task
from gemmtune.engine.scheduling.task_search import TaskSearch

__all__ = ["FIRST", "Exchange"]

FIRST = 8
"""Evaluations of a task that the others hear of: the fewest that search/models/transfer_model.py takes. Hearing of
more,
or again later, found no more on the recorded landscapes (experiments/search), and everyone would wait longer."""


class Exchange:
    """Tasks of one space and protocol, whose samplers learn, meet once: when each has had its first evaluations.

    Those that began with a history do not: beside whole tasks the first few outcomes of others teach little, and on six
    problems of an H200 that no choice was made on it was better not to hear them (0.999 of the optimum after 20
    evaluations, and 0.993 with them).

    Who is there early waits for the rest, which a scheduler begins with anyway. So what is taught depends on the
    results alone: not on the number of workers, on who was fastest, or on a kill in between.
    """

    def __init__(self, searches: Sequence[TaskSearch], protocol: Callable[[Task], str]) -> None:
        """Nobody is there yet; `protocol` is the executor's."""
        self._searches = searches
        self._protocol = protocol
        self._circles: list[_Circle] = []

    @cached_property
    def _of(self) -> dict[Task, _Circle]:
        """Each member's circle. They form when the first learner is there: a history may take seconds to read."""
        circles: dict[tuple[str, str], list[TaskSearch]] = {}
        for search in self._searches:
            if search.sampler.learns and not search.history:
                circles.setdefault((search.task.space, self._protocol(search.task)), []).append(search)
        self._circles = [_Circle(members) for members in circles.values() if len(members) > 1]
        return {member.task: circle for circle in self._circles for member in circle.members}

    def _circle(self, search: TaskSearch) -> _Circle | None:
        return self._of.get(search.task) if search.sampler.learns else None

    def holds(self, search: TaskSearch) -> bool:
        """Whether the search, told all that it asked, is to wait; `released` gives it back."""
        circle = self._circle(search)
        if circle is None or search.tuner.evaluations < FIRST:
            return False
        circle.waiting.append(search)
        circle.hear(search)
        return True

    def ended(self, search: TaskSearch) -> None:
        """The search is over: what it has found until now is all that the others will hear. Its tuner is still open."""
        circle = self._circle(search)
        if circle is not None:
            circle.hear(search)

    def released(self) -> list[TaskSearch]:
        """Those that need not wait any longer, in the plan's order, each with what all others have to teach."""
        complete = [circle for circle in self._circles if len(circle.found) == len(circle.members)]
        for circle in complete:
            for search in circle.waiting:
                search.heard = [past for task, past in circle.heard() if task != search.task]
        return self._dissolved(complete)

    def given_up(self) -> list[TaskSearch]:
        """Those that wait now, untaught: nobody has time to come."""
        self._searches = ()  # nobody learns any more: if circles have not formed yet, no history is read for them
        return self._dissolved(self._circles)

    def _dissolved(self, circles: Sequence[_Circle]) -> list[TaskSearch]:
        for circle in circles:
            for member in circle.members:
                del self._of[member.task]
        self._circles = [circle for circle in self._circles if circle not in circles]
        return [member for circle in circles for member in circle.members if member in circle.waiting]


class _Circle:
    """Tasks that can teach each other."""

    def __init__(self, members: Sequence[TaskSearch]) -> None:
        self.members = members
        self.waiting: list[TaskSearch] = []
        self.found: dict[Task, Past] = {}

    def hear(self, search: TaskSearch) -> None:
        """Keep what a member found, with what is known of those configs alone: of all, that is megabytes a task."""
        known = {trial.config: search.tuner.describe(trial.config) for trial in search.tuner.trials}
        self.found[search.task] = Past(search.tuner.trials, known.__getitem__)

    def heard(self) -> list[tuple[Task, Past]]:
        """What the members found, in the plan's order."""
        return [(member.task, self.found[member.task]) for member in self.members]
