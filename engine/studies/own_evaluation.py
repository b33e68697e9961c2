"""Ask and tell: a search whose configs the caller evaluates, however that is done."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import starmap

from gemmtune.engine.io.arguments import checks_arguments
from gemmtune.engine.io.numbers import checked, shown
from gemmtune.engine.records.config import Config, Param, Value, params_fault, spanned
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.measurement import Status, Trial
from gemmtune.engine.records.search import Search
from gemmtune.engine.scheduling.tuner import Tuner, created
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.search.enumeration import drawn_configs, permission


class AskTell:
    """Search of your own parameters by a sampler, with your own evaluation: `ask` for configs, `tell` their scores.

    Equal arguments and scores give equal configs, on every machine. A space of more than 262,144 points is not
    enumerated: see `Search.may_ask`.

    Example:
        >>> import gemmtune as gt
        >>> search = gt.AskTell({"tile": (16, 32, 64, 128), "warps": (1, 2, 4, 8)}, "evolution", budget=10)
        >>> while configs := search.ask(2):
        ...     search.tell([abs(config["tile"] - 64) + config["warps"] for config in configs])
        >>> search.best.config, search.best.score
        (Config(tile=64, warps=1), 1.0)
    """

    @checks_arguments
    def __init__(
        self,
        params: Mapping[str, Sequence[Value]] | Iterable[Param],
        sampler: str | type[Sampler] = "transfer",
        *,
        budget: int = 64,
        seed: int = 0,
        valid: Callable[[Config], object] = lambda config: True,
        first: Iterable[Mapping[str, Value]] = (),
    ) -> None:
        """Begin a search.

        Args:
            params: values of each parameter by its name; neighbours are taken to be alike where all are numbers.
            sampler: registered name, or class derived from `Sampler`.
            budget: evaluations to spend, failures included.
            seed: seed of every random choice.
            valid: whether a config may be asked for.
            first: configs to begin with, the best guess first.

        Raises:
            UnknownPlugin: no sampler has that name.
            UsageError: a number is out of bounds, there is no parameter, one has no values, an equal one or one that is
                not finite, no config is valid, or one of `first` is none of the valid ones.
            ContractError: the sampler breaks its contract.
        """
        listed = tuple(starmap(_param, params.items()) if isinstance(params, Mapping) else params)
        if not listed:
            raise UsageError("no parameter is given; a search needs at least one: {'tile': (16, 32)}")
        if fault := params_fault(listed):
            raise UsageError(fault)
        most, own = checked(budget, "budget", int, least=1), checked(seed, "seed", int, least=0)
        seeds, may_ask = tuple(map(Config, first)), permission(listed, valid)
        if wrong := next((config for config in seeds if not may_ask(config)), None):
            raise UsageError(f"{wrong} of first is no valid config")
        drawn = drawn_configs(listed, may_ask, most, own, seeds)
        feasible = tuple(filter(valid, spanned(listed))) if drawn is None else drawn
        if not feasible:
            many = "" if drawn is None else " among those drawn of a large space; give one as first, or fewer values"
            raise UsageError(f"no config is valid{many}")
        kind = registry.sampler(sampler) if isinstance(sampler, str) else sampler
        search = Search(
            listed, feasible, seeds, most, own, campaign_seed=own, may_ask=None if drawn is None else may_ask
        )
        self._tuner = Tuner(created(kind, search), most)
        self._asked: list[Config] = []

    def ask(self, count: int = 1) -> list[Config]:
        """Return up to `count` configs to evaluate next; none once the budget or the configs are used up.

        Raises:
            UsageError: the count is below 1, or the last configs have not been told.
            ContractError: the sampler breaks its contract.
        """
        self._tuner.most_at_once = checked(count, "count", int, least=1)
        if self._asked:
            raise UsageError(f"tell the scores of the last {len(self._asked)} configs first")
        self._asked = self._tuner.next_batch()
        return list(self._asked)

    @checks_arguments
    def tell(self, scores: Iterable[float | None]) -> None:
        """Report a score above 0 per config of the last `ask`, in its order: lower is better, None for a failure.

        Raises:
            UsageError: their number is another one, or a score is no number above 0.
        """
        told = [None if score is None else checked(score, "score", float, above=0) for score in scores]
        if len(told) != len(self._asked):
            raise UsageError(f"{len(told)} scores are told, and {len(self._asked)} configs were asked for")
        statuses = [Status.RUN_FAILED if score is None else Status.OK for score in told]
        asked, self._asked = self._asked, []
        self._tuner.tell([Trial(*each) for each in zip(asked, statuses, told, strict=True)])

    @property
    def best(self) -> Trial | None:
        """Trial with the lowest score, the earliest of equal ones; None before the first success."""
        return self._tuner.best

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Trials told so far, in order."""
        return self._tuner.trials


def _param(name: str, values: object) -> Param:
    """Return the parameter of a name; its values are ordered if all are numbers."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise UsageError(f"parameter {name}: {shown(values)} is no sequence of values; write ({shown(values)},)")
    is_ordered = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return Param(name, tuple(sorted(values) if is_ordered else values), is_ordered)
