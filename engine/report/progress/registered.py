"""Register a running campaign in its database, and obey what people tell it there."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from gemmtune.engine.campaign.backend import More, no_more
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.records.errors import GemmtuneError, StoreError
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.report.progress.metrics import observed
from gemmtune.engine.report.progress.price import Price
from gemmtune.engine.report.progress.state import CampaignState
from gemmtune.engine.scheduling.callbacks import Callback, notify
from gemmtune.engine.scheduling.orders import Orders
from gemmtune.engine.seams.executor import Load
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.shared.campaigns import ADDED, PRESENT, Account, Instructions, State, Wish

_REPORT_SECONDS = 1.0


class RegisteredCampaign(Callback):
    """Writes a campaign's progress into its database once per second, and passes on what it is told there."""

    def __init__(
        self, database: Database, number: int, state: CampaignState, price: Price | None, more: More = no_more
    ) -> None:
        """Follow a campaign.

        Args:
            database: holds the campaign's row.
            number: number of the row.
            state: progress of the campaign, which hears each event first.
            price: price of its machines; None if nobody named one.
            more: returns the searches of a problem that is added.
        """
        self.orders = Orders()
        """Orders to the campaign, read from the database."""
        self.callbacks: Sequence[Callback] = ()
        """Callbacks that are told of pauses."""
        self._campaigns = database.campaigns
        self._number = number
        self._state = state
        self._price = price
        self._reported = state.clock()
        self._why = ""
        self._more = more
        self._answers: dict[Workload, str] = {}
        self.publish: Callable[[], None] = lambda: None
        """Function that hands the progress to the Ray cluster that the campaign runs on."""

    def on_load(self, load: Load | None, seconds_left: float | None) -> None:
        """Write the progress, unless it was written a moment ago; raises StoreError if the database refused."""
        now = self._state.clock()
        if now - self._reported >= _REPORT_SECONDS:
            self._reported = now
            self.publish()
            self._obey(self._campaigns.report(self._number, self._now(), self._account(), self._answers))

    def end(self, state: State) -> None:
        """Write the last state; raises StoreError if the database refused."""
        self._campaigns.report(self._number, state, self._account(), self._answers)

    def _now(self) -> State:
        if not self.orders.is_paused:
            return State.RUNNING
        return State.PAUSED if self._why == _PAUSED else State.WAITING

    def _obey(self, told: Instructions) -> None:
        why = _PAUSED if told.wish is Wish.PAUSE else ""
        if not why and told.waits_for:
            why = f"waits for the campaign {told.waits_for}, which has a higher priority"
        cancelled = self.orders.is_cancelled or told.wish is Wish.CANCEL
        if cancelled and not self.orders.is_cancelled:
            notify(self.callbacks, "cancelled: what is in work ends, and the table is written with what is done")
        elif why != self._why:
            notify(self.callbacks, why or "goes on")
        self._why = why
        self._state.held_back = why and ("paused" if why == _PAUSED else "waiting")
        self._answers |= {problem: self._answer(problem) for problem in told.added if problem not in self._answers}
        self.orders.is_paused, self.orders.is_cancelled, self.orders.added = bool(why), cancelled, told.added

    def _answer(self, problem: Workload) -> str:
        if self.orders.is_cancelled:
            return "the campaign is cancelled"
        if problem in self._state.problems:
            return PRESENT
        if not self.orders.takes_problems:
            return "the campaign's searches are over; its command searches the problem when it is started again"
        try:
            self._more(problem)
        except GemmtuneError as error:
            return str(error)
        return ADDED

    def _account(self) -> Account:
        state = self._state
        return Account(
            done=state.done,
            total=state.total,
            gpu_seconds_held=state.gpu_seconds_held,
            gpu_seconds_busy=state.gpu_seconds_busy,
            core_seconds=state.core_seconds,
            gain=state.gain.value,
            gain_problems=state.gain.problems,
            gain_per_hour=state.gain.per_hour,
            cost=None if self._price is None else self._price.of(state),
        )


_PAUSED = "paused: what is in work ends, and nothing is submitted until `gemmtune campaigns` resumes it"


@contextmanager
def registered(
    database: Database,
    plan: Plan,
    state: CampaignState,
    callbacks: Sequence[Callback],
    *,
    name: str,
    location: str,
    price: Price | None,
    more: More = no_more,
    on_cluster: bool = False,
) -> Iterator[RegisteredCampaign]:
    """Register a campaign while the block runs; yield the callback to give to it, behind its state.

    A SQLite file has one driver: of a second one this says that both go on, which loses nothing and shares nothing.

    Args:
        database: database of the measurements.
        plan: plan of the campaign.
        state: progress of the campaign.
        callbacks: told of other drivers and pauses.
        name: name of the campaign; empty for the owner's, with a digest of the plan.
        location: host or cluster whose GPUs it takes.
        price: price of its machines; None if nobody named one.
        more: returns the searches of a problem that is added.
        on_cluster: whether it runs on a Ray cluster, which gets its metrics.

    Raises:
        StoreError: the database refused.
    """
    others = [each for each in database.campaigns.all() if each.is_live] if database.claims() is None else []
    for other in others[:1]:
        process = f"process {other.pid} on {other.host}"
        notify(
            callbacks,
            f"this database file has a driver already, {other.name} ({process}): both go on, nothing is lost, and what "
            "they have in common is evaluated twice; drivers on a PostgreSQL server share it (--database postgresql://...)",
        )
    number = database.campaigns.register(name, _digest(plan), location, len(state.problems) or len(plan.problems))
    follower = RegisteredCampaign(database, number, state, price, more)
    follower.callbacks = callbacks
    try:
        with observed(state, name or _digest(plan), location, price, on_cluster=on_cluster) as follower.publish:
            yield follower
            follower.publish()
    except BaseException:
        database.stop_waiting()
        with suppress(StoreError):
            follower.end(State.STOPPED)
        raise
    follower.end(State.CANCELLED if follower.orders.is_cancelled else State.DONE)


def _digest(plan: Plan) -> str:
    """Return a digest of what is tuned, and how: equal for the drivers of one campaign."""
    sampler = plan.sampler if isinstance(plan.sampler, str) else plan.sampler.__qualname__
    problems = [problem.name for problem in (*plan.problems, *plan.held_out)]
    facts = problems, plan.spaces, sampler, plan.pruners, plan.objective, plan.budget, plan.seed
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:6]
