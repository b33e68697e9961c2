"""What a campaign is asked to do, and the TOML file that says it.

space = "triton_mm"                 # or a list of names
sampler = "transfer"
budget = 64                         # evaluations a task
seed = 0
seconds = 3600                      # searching ends then; also gpu_seconds, times the GPUs
regret = 0.02                       # a task is done when its best is at most this far behind the best there is
margin = 0.02                       # lead over the vendor library that a row needs to ship anything else
portfolio = true                    # few configs for all problems; or { worst = 0.02, mean = 0.005 }, their losses
ranges = true                       # rows for ranges of m, too; or { worst = 0.02, buckets = true }: powers of two
hold_out = ["80x4096x4096:bf16:nt"] # problems that check the ranges, and have no say in them
problems = ["16x4096x4096:bf16:nt", "2048x4096x4096:bf16:nt"]

[[problem]]                         # the long form, with a weight
m = 1
n = 6144
k = 4096
dtype = "bf16"
layout = "nt"
weight = 20

[[problem]]                         # one GEMM at several m
m = [16, 64, 256]
hold_out = [40]
n = 4096
k = 4096
dynamic_m = true
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import BASELINE_SPACE
from gemmtune.engine.scheduling.stopping import Limits
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.seams.pruner import Pruner
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.seams.space import Space
from gemmtune.engine.tables.portfolio import LossLimits
from gemmtune.engine.tables.ranges import RangeLimits
from gemmtune.engine.tables.ranking import SHIP_MARGIN

__all__ = ["Plan", "Plugins", "read_plan"]

_T = TypeVar("_T")
_KINDS: dict[type, str] = {
    int: "an integer",
    float: "a number",
    str: "a text",
    list: "a list of tables",
    dict: "a table of m, n, k, ...",
}
_LIMITS = ("seconds", "gpu_seconds", "regret")
_SHIPPING = ("margin", "portfolio", "ranges")
_KEYS = {"problem", "problems", "hold_out", "space", "sampler", "pruner", "objective", "budget", "seed", "batch"} | {
    *_LIMITS,
    *_SHIPPING,
}


@dataclass(frozen=True, slots=True)
class Plugins:
    """The plug-ins of a plan."""

    spaces: Mapping[str, Space]
    """Spaces by name: the baseline's, then those to search."""
    sampler: type[Sampler]
    """Sampler class of every task."""
    pruners: Mapping[str, Pruner]
    """Pruners by name."""
    objective: Objective
    """Objective to minimise."""


@dataclass(frozen=True)
class Plan:
    """A campaign before it meets a device."""

    problems: tuple[Problem, ...] = ()
    """What to tune for, each once; empty for every problem of the embedded landscapes."""
    spaces: tuple[str, ...] = ("triton_mm",)
    """The spaces to search."""
    sampler: str | type[Sampler] = "transfer"
    """Sampler of every task: a registered name, or a class."""
    pruners: tuple[str, ...] = ()
    """Asked before and after each build."""
    objective: str = "latency"
    """What to minimise."""
    budget: int = 64
    """Evaluations a task, failures included."""
    seed: int = 0
    """Seed of every random choice."""
    batch: int = 8
    """Configs a sampler is asked for at once; more keeps more builders busy and learns later."""
    limits: Limits = field(default_factory=Limits)
    """What ends the search of a task, or of all, before the budget does."""
    margin: float = SHIP_MARGIN
    """Lead over the baseline that a row needs to ship anything else, as a fraction."""
    portfolio: LossLimits | None = None
    """What sharing configs among problems may cost; None to give each problem its own best."""
    ranges: RangeLimits | None = None
    """What a row for a range of m may lose; None for no such rows."""
    held_out: tuple[Problem, ...] = ()
    """Problems that are tuned to check the ranges, each once: they get no row."""

    def __post_init__(self) -> None:
        """Refuse numbers out of bounds, nothing to search, a problem named twice, and unknown plug-ins.

        Raises:
            UsageError: a value is out of bounds; the message names it.
            UnknownPlugin: no plug-in has one of the names.
        """
        for name, least in (("budget", 1), ("batch", 1), ("seed", 0)):
            value = getattr(self, name)
            if value < least:
                raise UsageError(f"{name}={value} is below {least}")
        if not self.margin >= 0:
            raise UsageError(f"margin={self.margin} is not a fraction from 0 on, such as 0.02")
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
            spaces={name: registry.space(name) for name in dict.fromkeys((BASELINE_SPACE, *self.spaces))},
            sampler=registry.sampler(self.sampler) if isinstance(self.sampler, str) else self.sampler,
            pruners={name: registry.pruner(name) for name in self.pruners},
            objective=registry.objective(self.objective),
        )

    @property
    def scores(self) -> int:
        """Number of scores per trial."""
        return max(1, len(self.plugins.objective.parts))


def read_plan(path: Path) -> Plan:
    """Read a campaign file.

    Raises:
        UsageError: it is missing, not TOML, or has an unknown key, a value of the wrong kind or one out of bounds.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read campaign {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"campaign {path} is not TOML: {error}") from None
    try:
        return _plan(content)
    except UsageError as error:
        raise UsageError(f"campaign {path}: {error}") from None


def _plan(content: Mapping[str, object]) -> Plan:
    unknown = sorted(set(content) - _KEYS)
    if unknown:
        raise UsageError(f"unknown key {unknown[0]!r}; known: {', '.join(sorted(_KEYS))}")

    def one(name: str, kind: type[_T], default: _T) -> _T:
        return _kind(name, content.get(name, default), kind)

    def names(name: str, default: tuple[str, ...]) -> tuple[str, ...]:
        value = content.get(name, list(default))
        return tuple(_kind(name, n, str) for n in (value if isinstance(value, list) else [value]))

    default = Plan()
    blocks = [_Block.read(number, record) for number, record in enumerate(one("problem", list, []), 1)]
    return Plan(
        problems=(
            *(Problem.parse(text) for text in names("problems", ())),
            *(problem for block in blocks for problem in block.problems("m")),
        ),
        spaces=names("space", default.spaces),
        sampler=_kind("sampler", content.get("sampler", default.sampler), str),
        pruners=names("pruner", default.pruners),
        objective=one("objective", str, default.objective),
        budget=one("budget", int, default.budget),
        seed=one("seed", int, default.seed),
        batch=one("batch", int, default.batch),
        limits=Limits(**{name: _number(name, content[name]) for name in _LIMITS if name in content}),
        margin=_number("margin", content.get("margin", default.margin)),
        portfolio=_loss_limits(content.get("portfolio", False)),
        ranges=_range_limits(content.get("ranges", False)),
        held_out=(
            *(Problem.parse(text) for text in names("hold_out", ())),
            *(problem for block in blocks for problem in block.problems("hold_out")),
        ),
    )


def _loss_limits(value: object) -> LossLimits | None:
    if isinstance(value, bool):
        return LossLimits() if value else None
    if not isinstance(value, dict):
        raise UsageError(f"portfolio={value!r} is not true, false or a table of worst and mean")
    unknown = sorted(set(value) - {"worst", "mean"})
    if unknown:
        raise UsageError(f"unknown key {unknown[0]!r} in portfolio; known: mean, worst")
    return LossLimits(**{name: _number(f"portfolio.{name}", number) for name, number in value.items()})


def _range_limits(value: object) -> RangeLimits | None:
    if isinstance(value, bool):
        return RangeLimits() if value else None
    if not isinstance(value, dict):
        raise UsageError(f"ranges={value!r} is not true, false or a table of worst and buckets")
    unknown = sorted(set(value) - {"worst", "buckets"})
    if unknown:
        raise UsageError(f"unknown key {unknown[0]!r} in ranges; known: buckets, worst")
    if not isinstance(value.get("buckets", False), bool):
        raise UsageError(f"ranges.buckets={value['buckets']!r} is not true or false")
    default = RangeLimits()
    return RangeLimits(_number("ranges.worst", value.get("worst", default.worst)), value.get("buckets", False))


@dataclass(frozen=True, slots=True)
class _Block:
    """A `[[problem]]`: one GEMM at one m or several."""

    fields: Mapping[str, object]

    @classmethod
    def read(cls, number: int, record: object) -> _Block:
        return cls(_kind(f"problem {number}", record, dict))

    def problems(self, name: str) -> list[Problem]:
        """Those at the m that stand under `m` or `hold_out`."""
        rest = {str(field): str(value) for field, value in self.fields.items() if field not in ("m", "hold_out")}
        sizes = self.fields.get(name, [] if name == "hold_out" else "")
        return [Problem.from_fields({**rest, "m": str(m)}) for m in (sizes if isinstance(sizes, list) else [sizes])]


def _number(name: str, value: object) -> float:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else _kind(name, value, float)


def _kind(name: str, value: object, kind: type[_T]) -> _T:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise UsageError(f"{name}={value!r} is not {_KINDS[kind]}")
    return value
