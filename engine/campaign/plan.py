"""The plan of a campaign: what to tune, by which plug-ins, within which limits."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self, TypeAlias, TypedDict, get_type_hints

from gemmtune.engine.io.options import Option, Value, check_options, options_of, stated
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.table import SHIP_MARGIN
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.scheduling.stopping import Limits
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.kinds import GEMM_BASELINE, require_kinds
from gemmtune.engine.seams.objective import Objective, comparing_bits
from gemmtune.engine.seams.pruner import Pruner
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.seams.space import Space
from gemmtune.engine.tables.loss_limits import LossLimits, RangeLimits


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


_SHARED = LossLimits()
_MARGIN = "Lead over the vendor library that a row needs to ship another kernel, as a fraction."
_PORTFOLIO = (
    f"Let problems share few configs, at most {100 * _SHARED.worst:g} % behind each one's best and "
    f"{100 * _SHARED.mean:g} % in the mean."
)
_RANGES = (
    "Add rows for ranges of m, for each GEMM or layer with problems at several m. Measures a few configs at each 2^e "
    "and 3·2^e between those m, and each range's kernel beside the vendor library in eighths of an octave; builds "
    "nothing."
)
_BATCH_INVARIANT = (
    "Give a product equal bits at every m: kernels of one (n, k) add in one order, the one that loses least over the "
    "m of the campaign. Rows run no vendor library and no kernel that splits k."
)
_ONE_BLOCK_K = "Give the kernels of one (n, k) one BLOCK_K, too, as vLLM's batch-invariant table has it."
_HELD_OUT = "Problem that checks the ranges, gets no row and costs a search."


@dataclass(frozen=True)
class Plan:
    """A campaign before it meets a device. Its fields state its options."""

    problems: tuple[Workload, ...] = ()
    """Problems to tune, each once; empty for every problem of the shipped landscapes."""
    spaces: tuple[str, ...] = stated(
        ("triton_mm",), Option("Space to search.", Value.NAMES, "Search", Space, name="space")
    )
    sampler: str | type[Sampler] = stated(
        "transfer", Option("Sampler of every task.", Value.SAMPLER, "Search", Sampler)
    )
    pruners: tuple[str, ...] = stated(
        (), Option("Pruner, asked before and after each build.", Value.NAMES, "Search", Pruner, name="pruner")
    )
    objective: str = stated("latency", Option("Objective to minimise.", Value.NAME, "Search", Objective))
    budget: int = stated(64, Option("Evaluations per search, failures included.", Value.INTEGER, "Limits", least=1))
    seed: int = stated(0, Option("Seed of every random choice.", Value.INTEGER, "Search", least=0))
    batch: int = stated(8, Option("Configs that the sampler is asked for at once.", Value.INTEGER, "Search", least=1))
    """More keep more builders busy and teach the sampler later."""
    limits: Limits = field(default_factory=Limits)
    """Limits that end searches before their budgets are spent; they state options, too."""
    margin: float = stated(SHIP_MARGIN, Option(_MARGIN, Value.FRACTION, "Table", least=0))
    portfolio: LossLimits | None = stated(None, Option(_PORTFOLIO, Value.LIMITS, "Table", LossLimits))
    ranges: RangeLimits | None = stated(None, Option(_RANGES, Value.LIMITS, "Table", RangeLimits))
    batch_invariant: bool = stated(False, Option(_BATCH_INVARIANT, Value.FLAG, "Table"))
    one_block_k: bool = stated(False, Option(_ONE_BLOCK_K, Value.FLAG, "Table"))
    held_out: tuple[Workload, ...] = stated((), Option(_HELD_OUT, Value.PROBLEMS, "Problems", name="hold_out"))

    def __post_init__(self) -> None:
        """Refuse values of wrong types or out of bounds, nothing to search, a problem named twice, unknown plug-ins.

        Raises:
            UsageError: a value is of another type or out of bounds; the message names it.
            UnknownPlugin: no plug-in has one of the names.
        """
        check_options(self)
        if not self.spaces:
            raise UsageError("no space to search; the default is triton_mm")
        names = Counter(problem.name for problem in (*self.problems, *self.held_out))
        for name, times in names.items():
            if times > 1:
                raise UsageError(f"problem {name} is named {times} times; name it once, with the sum of its weights")
        if self.held_out and self.ranges is None:
            raise UsageError(f"{self.held_out[0].name} is held out, and there are no ranges to check: ask for ranges")
        if self.batch_invariant and (self.portfolio is not None or self.held_out):
            other = "portfolio" if self.portfolio is not None else "hold_out"
            raise UsageError(f"batch_invariant and {other} exclude each other: leave one out")
        if self.one_block_k and not self.batch_invariant:
            raise UsageError("one_block_k is for batch_invariant tables: ask for both, or for neither")
        for option in options_of(Plan).values():
            if option.value in (Value.NAME, Value.NAMES, Value.SAMPLER):
                named = getattr(self, option.field)
                for name in named if isinstance(named, tuple) else (named,):
                    if isinstance(name, str):
                        registry.look_up(option.of, name)

    def changed(self, **values: object) -> Self:
        """Return the plan with other values of fields, those of its limits among them; raises like `Plan`."""
        given: dict[str, Any] = dict(values)
        limits = {name: given.pop(name) for name in options_of(Limits) if name in given}
        return replace(self, limits=replace(self.limits, **limits), **given)

    @cached_property
    def plugins(self) -> Plugins:
        """The plan's plug-ins; loaded once, at the first use.

        Raises:
            ContractError: a name is registered for something that is no plug-in of its kind.
        """
        objective = registry.objective(self.objective)
        return Plugins(
            spaces={name: registry.space(name) for name in dict.fromkeys((*self.baselines, *self.spaces))},
            sampler=registry.sampler(self.sampler) if isinstance(self.sampler, str) else self.sampler,
            pruners={name: registry.pruner(name) for name in self.pruners},
            objective=comparing_bits(objective) if self.batch_invariant else objective,
        )

    def require_kinds(self) -> None:
        """Refuse a problem that no space takes, and a space that takes no problem.

        Raises:
            UsageError: a space and a problem are of two kinds, or a space has no order of summation that is wanted.
        """
        spaces = {name: self.plugins.spaces[name] for name in self.spaces}
        require_kinds(spaces, (*self.problems, *self.held_out))
        for name, space in spaces.items() if self.batch_invariant else ():
            if type(space).summation is Space.summation:
                why = "its kernels may add in another order at another m, those of triton_mm in one"
                its = ", ".join(each.name for each in self.problems if each.searched_space == name) or "it"
                raise UsageError(f"batch_invariant excludes space {name}: {why}; leave {its} out")

    @property
    def baselines(self) -> tuple[str, ...]:
        """Names of the baselines' spaces; that of a GEMM where no problem is named."""
        named = dict.fromkeys(problem.baseline_space for problem in (*self.problems, *self.held_out))
        return tuple(named) or (GEMM_BASELINE,)

    @property
    def scores(self) -> int:
        """Number of scores per trial."""
        return max(1, len(self.plugins.objective.parts))


ProblemLike: TypeAlias = str | Workload | type
"""A problem, or its text: "2048x4096x4096:bf16:nt"."""


class PlanOptions(TypedDict, total=False):
    """Types of the options by keyword, for checkers and editors; None and empty leave a plan as it is."""

    space: str | type[Space] | Iterable[str | type[Space]] | None
    sampler: str | type[Sampler] | None
    pruner: str | type[Pruner] | Iterable[str | type[Pruner]] | None
    objective: str | type[Objective] | None
    budget: int | None
    seed: int | None
    batch: int | None
    seconds: float | None
    gpu_seconds: float | None
    regret: float | None
    stop_gain: float | None
    margin: float | None
    portfolio: bool | Mapping[str, float] | LossLimits | None
    ranges: bool | Mapping[str, float] | RangeLimits | None
    batch_invariant: bool | None
    one_block_k: bool | None
    hold_out: ProblemLike | Iterable[ProblemLike] | None


_STATED = {**options_of(Plan), **options_of(Limits)}
OPTIONS: Mapping[str, Option] = {name: _STATED[name] for name in get_type_hints(PlanOptions)}
"""Options of a plan and its limits by name, in the order of `PlanOptions`."""
