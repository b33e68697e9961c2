"""Values that options take: listed in help, and completed in a shell."""

from collections.abc import Callable
from enum import StrEnum

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.errors import UsageError, did_you_mean
from gemmtune.engine.records.gemm.terms import DType, Layout, Op
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.seams.pruner import Pruner
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.seams.space import Space

_BASELINES = ("aten", "aten_grouped", "_default", "_shipped")
"""Ends of the names of the spaces that hold a baseline's one config: every campaign measures it, and none searches."""


class Kind(StrEnum):
    """Kind of thing that `gemmtune list` prints."""

    SAMPLERS = "samplers"
    SPACES = "spaces"
    DEVICES = "devices"
    OBJECTIVES = "objectives"
    LANDSCAPES = "landscapes"
    PRUNERS = "pruners"
    EXPORTERS = "exporters"


SEAMS: dict[Kind, type] = {
    Kind.SAMPLERS: Sampler,
    Kind.SPACES: Space,
    Kind.OBJECTIVES: Objective,
    Kind.PRUNERS: Pruner,
    Kind.EXPORTERS: Exporter,
}
"""Base class of each kind's plug-ins."""


def kind_named(text: str) -> Kind:
    """Return the kind of a name, which may be singular; raises UsageError if no kind has that name."""
    known = list(Kind)
    found = next((kind for kind in known if text.casefold() in (kind, kind.removesuffix("s"))), None)
    if found is None:
        raise UsageError(f"gemmtune list knows no {text!r}; {did_you_mean(text, known)}known: {', '.join(known)}")
    return found


def one_of(kind: Kind) -> str:
    """Return the choices of a kind as help shows them: `one of a, b or c`."""
    *most, last = names(kind)
    return f"one of {', '.join(most)} or {last}" if most else last


def completed(kind: Kind) -> Callable[[str], list[str]]:
    """Return the function that a shell asks for the choices that begin with a text."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names(kind) if name.lower().startswith(incomplete.lower())]

    return complete


def completed_problem(incomplete: str) -> list[str]:
    """Return the problems that a text may become: its next part, sizes of recorded problems for the first."""
    from gemmtune.engine.store.landscapes.landscape_file import embedded, read_landscapes

    *given, part = incomplete.split(":")
    if not given:
        recorded = {x.problem.name for path in embedded("triton_mm") for x in read_landscapes(path) if x.problem}
        return sorted(name for name in recorded if name.startswith(part))
    layouts = [f"{a}{b}" for a in Layout for b in Layout]
    parts: list[list[str]] = [list(DType), layouts, list(Op)]
    known = parts[len(given) - 1] if len(given) <= len(parts) else ["dynamic_m=true"]
    return [":".join([*given, str(each)]) for each in known if str(each).startswith(part)]


def names(kind: Kind) -> list[str]:
    """Return the names that a user may give for a kind, sorted."""
    if kind is Kind.DEVICES:
        return sorted(device.sku for device in catalogue.devices())
    return [name for name in registry.names(SEAMS[kind]) if not name.endswith(_BASELINES)]
