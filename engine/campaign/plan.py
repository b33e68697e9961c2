"""The plan of a campaign: what to tune, by which plug-ins, within which limits."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from gemmtune.engine.io.numbers import checked, checked_fraction
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.table import SHIP_MARGIN
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.scheduling.stopping import Limits
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.kinds import GEMM_BASELINE, require_kinds
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.seams.pruner import Pruner
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.seams.space import Space
from gemmtune.engine.tables.portfolio import LossLimits
from gemmtune.engine.tables.ranges import RangeLimits


@dataclass(frozen=True, slots=True)
class Plugins:
    """The plug-ins of a plan."""

    spaces: Mapping[str, Space]
    """Spaces by name, the baseline's first, then those to search."""
    sampler: type[Sampler]
    """Sampler class of every task."""
    pruners: Mapping[str, Pruner]
    """Pruner objects by their names."""
    objective: Objective
    """Objective that the campaign minimises."""


@dataclass(frozen=True)
class Plan:
    """A campaign before it meets a device."""

    problems: tuple[Workload, ...] = ()
    """Problems to tune, each once; empty for every problem of the shipped landscapes."""
    spaces: tuple[str, ...] = ("triton_mm",)
    """Names of the spaces to search."""
    sampler: str | type[Sampler] = "transfer"
    """Sampler of every task: a registered name, or a class."""
    pruners: tuple[str, ...] = ()
    """Names of the pruners, applied before and after each build."""
    objective: str = "latency"
    """Name of the objective to minimise."""
    budget: int = 64
    """Evaluations per task, failures included."""
    seed: int = 0
    """Seed of every random choice."""
    batch: int = 8
    """Configs that a sampler is asked for at once; more keep more builders busy and teach the sampler later."""
    limits: Limits = field(default_factory=Limits)
    """Limits that end searches before their budgets are spent."""
    margin: float = SHIP_MARGIN
    """Lead over the baseline that a row needs to ship anything else, as a fraction."""
    portfolio: LossLimits | None = None
    """Loss that sharing configs among problems may cost; None gives each problem its own best."""
    ranges: RangeLimits | None = None
    """Loss that a row for a range of m may have; None for no such rows."""
    held_out: tuple[Workload, ...] = ()
    """Problems that are tuned to check the ranges, each once; they get no row."""

    def __post_init__(self) -> None:
        """Refuse numbers out of bounds, nothing to search, a problem named twice, and unknown plug-ins.

        Raises:
            UsageError: a value is out of bounds; the message names it.
            UnknownPlugin: no plug-in has one of the names.
        """
        for name, least in (("budget", 1), ("batch", 1), ("seed", 0)):
            checked(getattr(self, name), name, int, least=least)
        checked_fraction(self.margin, "margin", least=0)
        if not self.spaces:
            raise UsageError("no space to search; the default is triton_mm")
        names = Counter(problem.name for problem in (*self.problems, *self.held_out))
        for name, times in names.items():
            if times > 1:
                raise UsageError(f"problem {name} is named {times} times; name it once, with the sum of its weights")
        if self.held_out and self.ranges is None:
            raise UsageError(f"{self.held_out[0].name} is held out, and there are no ranges to check: ask for ranges")
        if isinstance(self.sampler, str):
            registry.look_up(Sampler, self.sampler)
        registry.look_up(Objective, self.objective)
        for name in self.spaces:
            registry.look_up(Space, name)
        for name in self.pruners:
            registry.look_up(Pruner, name)

    @cached_property
    def plugins(self) -> Plugins:
        """The plan's plug-ins; loaded once, at the first use.

        Raises:
            ContractError: a name is registered for something that is no plug-in of its kind.
        """
        return Plugins(
            spaces={name: registry.space(name) for name in dict.fromkeys((*self.baselines, *self.spaces))},
            sampler=registry.sampler(self.sampler) if isinstance(self.sampler, str) else self.sampler,
            pruners={name: registry.pruner(name) for name in self.pruners},
            objective=registry.objective(self.objective),
        )

    def require_kinds(self) -> None:
        """Refuse a problem that no space takes, and a space that takes no problem.

        Raises:
            UsageError: a space and a problem are of two kinds.
        """
        spaces = {name: self.plugins.spaces[name] for name in self.spaces}
        require_kinds(spaces, (*self.problems, *self.held_out))

    @property
    def baselines(self) -> tuple[str, ...]:
        """Names of the baselines' spaces; that of a GEMM where no problem is named."""
        named = dict.fromkeys(problem.baseline_space for problem in (*self.problems, *self.held_out))
        return tuple(named) or (GEMM_BASELINE,)

    @property
    def scores(self) -> int:
        """Number of scores per trial."""
        return max(1, len(self.plugins.objective.parts))
