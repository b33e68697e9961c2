"""Read a plan from a campaign file in TOML.

space = "triton_mm"                 # or a list of names
sampler = "transfer"
budget = 64                         # evaluations per task
seed = 0
seconds = 3600                      # searching ends then; or gpu_seconds: wall time × GPUs
regret = 0.02                       # a search ends when its regret bound is at most this
margin = 0.02                       # lead over the vendor library that a row needs to ship anything else
portfolio = true                    # few configs for all problems; or { worst = 0.02, mean = 0.005 }: most loss
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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.scheduling.stopping import Limits
from gemmtune.engine.tables.portfolio import LossLimits
from gemmtune.engine.tables.ranges import RangeLimits

__all__ = ["read_plan"]

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
    """A `[[problem]]` table: one GEMM at one m or several."""

    fields: Mapping[str, object]

    @classmethod
    def read(cls, number: int, record: object) -> _Block:
        return cls(_kind(f"problem {number}", record, dict))

    def problems(self, name: str) -> list[Problem]:
        """Return the problems at each m under the key `m` or `hold_out`."""
        rest = {str(field): str(value) for field, value in self.fields.items() if field not in ("m", "hold_out")}
        sizes = self.fields.get(name, [] if name == "hold_out" else "")
        return [Problem.from_fields({**rest, "m": str(m)}) for m in (sizes if isinstance(sizes, list) else [sizes])]


def _number(name: str, value: object) -> float:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else _kind(name, value, float)


def _kind(name: str, value: object, kind: type[_T]) -> _T:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise UsageError(f"{name}={value!r} is not {_KINDS[kind]}")
    return value
