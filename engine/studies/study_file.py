"""Record of a study, from which others check its figures or go on: what was searched, by what code, and what was asked.

A trial is the position of its config in the landscape: status and time stand in the landscape's file, which the
record knows by a hash.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path

from gemmtune.engine.io.reading import parse_json, read_text
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.records.measurement import Trial
from gemmtune.engine.seams.codec import Malformed, decoded, encoded
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.store.landscapes.landscape_file import embedded
from gemmtune.engine.studies.sampler_study import Replay

_PACKAGES = ("gemmtune", "numpy", "scipy", "scikit-learn", "optuna", "cmaes")
"""Packages that decide what a sampler asks."""


@dataclass(frozen=True, slots=True)
class StudiedLandscape:
    """Landscape of a study."""

    name: str
    """Name of its problem, or of its file."""
    source: str
    """Path of its file; the name alone of a file that ships with gemmtune."""
    sha256: str
    """Hash of the outcomes of all configs, in their order: see `landscape_hash`."""


@dataclass(frozen=True, slots=True)
class StudiedSampler:
    """Sampler of a study, with what it asked."""

    code: str
    """Module and name of its class."""
    sha256: str
    """Hash of the source text of its module; empty where that cannot be read."""
    trials: tuple[tuple[tuple[int, ...], ...], ...] = field(metadata={"least": 0})
    """Positions of the configs in their landscape in the order asked, per seed and landscape."""


@dataclass(frozen=True, slots=True)
class StudySettings:
    """Arguments of `replay` that decide what a sampler is asked and told."""

    batch: int = field(metadata={"least": 1})
    """Configs that a sampler is asked for at once."""
    cold: bool = False
    """Whether the starting points of the recorded space are kept from the sampler."""
    apart: bool = False
    """Whether no search learns from those of other landscapes."""
    noise: bool = False
    """Whether a sampler is told single recorded launches."""


@dataclass(frozen=True, slots=True)
class StudyRecord:
    """Study as a file holds it."""

    budget: int = field(metadata={"least": 1})
    """Evaluations per search, failures included."""
    seeds: tuple[int, ...] = field(metadata={"least": 0})
    """Seeds of the searches; each landscape draws from its own stream of them."""
    settings: StudySettings
    """Further arguments of `replay`."""
    versions: Mapping[str, str]
    """Versions of Python and of packages that decide what a sampler asks; several in the order of their use."""
    landscapes: tuple[StudiedLandscape, ...]
    """Landscapes that were searched, in order."""
    samplers: Mapping[str, StudiedSampler]
    """Samplers that were compared, by label."""
    schema: int = 1
    """Version of this format."""

    @property
    def fault(self) -> str:
        """Reason why the record cannot be of a study; empty for none."""
        if self.schema != 1:
            return f"schema {self.schema} is of another gemmtune; this one reads 1"
        if not (self.samplers and self.landscapes and self.seeds == tuple(range(len(self.seeds))) != ()):
            return "it needs a sampler, a landscape, and seeds from 0 on"
        shape = [len(self.landscapes)] * len(self.seeds)
        for name, sampler in self.samplers.items():
            if [len(replay) for replay in sampler.trials] != shape:
                return f"samplers.{name}.trials does not hold {shape[0]} searches for each of {len(shape)} seeds"
            if any(len(search) > self.budget for replay in sampler.trials for search in replay):
                return f"samplers.{name}.trials holds a search of more evaluations than the budget, {self.budget}"
        return ""


def landscape_hash(landscape: Landscape) -> str:
    """Return the SHA-256 of a landscape's configs, statuses, times and costs, in file order."""
    found = hashlib.sha256()
    for point in landscape.points.values():
        found.update(f"{point.config.json} {point.status} {point.time_ns!r} {point.cost_seconds!r}\n".encode())
    return found.hexdigest()


def study_record(
    landscapes: Sequence[Landscape],
    kinds: Mapping[str, tuple[str, str]],
    found: Mapping[str, Sequence[Replay]],
    budget: int,
    settings: StudySettings,
    versions: Mapping[str, str],
) -> StudyRecord:
    """Return the record of a study; `kinds` holds the code and its hash per sampler, as `code_of` returns them."""
    shipped = {str(path): path.name for path in embedded()}
    places = [{config: place for place, config in enumerate(landscape.points)} for landscape in landscapes]
    samplers = {}
    for name, replays in found.items():
        trials = tuple(
            tuple(tuple(at[t.config] for t in trials) for at, trials in zip(places, replay, strict=True))
            for replay in replays
        )
        samplers[name] = StudiedSampler(*kinds.get(name, ("", "")), trials)
    searched = tuple(StudiedLandscape(x.name, shipped.get(x.source, x.source), landscape_hash(x)) for x in landscapes)
    seeds = tuple(range(len(next(iter(found.values())))))
    return StudyRecord(budget, seeds, settings, versions, searched, samplers)


def code_of(sampler: type[Sampler]) -> tuple[str, str]:
    """Return module and name of a sampler's class, and the hash of its module's source; empty where that is none."""
    try:
        text = inspect.getsource(inspect.getmodule(sampler) or sampler)
    except (OSError, TypeError):  # of a notebook
        text = ""
    return f"{sampler.__module__}:{sampler.__qualname__}", text and hashlib.sha256(text.encode()).hexdigest()


def write_record(record: StudyRecord) -> str:
    """Return the text of the file, with a line per search."""
    parts = encoded(record)
    head = {name: value for name, value in parts.items() if name != "samplers"}
    lines = json.dumps(head, indent=1)[:-2] + ',\n "samplers": {'
    for name, sampler in parts["samplers"].items():
        searches = ",\n".join(f"   {json.dumps(replay, separators=(',', ':'))}" for replay in sampler.pop("trials"))
        facts = json.dumps(sampler, indent=2)[1:-2]
        lines += f'\n  {json.dumps(name)}: {{{facts},\n  "trials": [\n{searches}\n  ]}},'
    return f"{lines[:-1]}\n }}\n}}\n"


def read_record(path: Path) -> StudyRecord:
    """Return the record of a study's file; raises UsageError, which names place and value, if it is wrong."""
    value = parse_json(read_text(path, "study"), str(path))
    try:
        return decoded(StudyRecord, value)
    except Malformed as error:
        raise UsageError(f"{path} is no study that gemmtune wrote: {error}") from None


def replays_of(record: StudyRecord, path: Path, landscapes: Sequence[Landscape]) -> dict[str, list[Replay]]:
    """Return the trials of each sampler on the landscapes, which are those of the record in its order.

    Raises:
        UsageError: a position is no config of its landscape, or is twice in one search.
    """
    outcomes = [[Trial(p.config, p.status, p.time_ns) for p in landscape.points.values()] for landscape in landscapes]
    found: dict[str, list[Replay]] = {}
    for name, sampler in record.samplers.items():
        found[name] = []
        for replay in sampler.trials:
            for of, positions in zip(outcomes, replay, strict=True):
                ordered = sorted(positions)
                if ordered and (ordered[-1] >= len(of) or any(a == b for a, b in pairwise(ordered))):
                    raise UsageError(f"{path} is damaged: sampler {name} asked what its landscape does not have")
            searches = zip(outcomes, replay, strict=True)
            found[name].append([tuple(of[place] for place in positions) for of, positions in searches])
    return found


def versions_with(earlier: Mapping[str, str]) -> dict[str, str]:
    """Return the versions of Python and packages that are installed, behind other ones of earlier searches."""
    own = {"python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            own[package] = version(package)
    texts = {name: f"{earlier.get(name, '')}, {own.get(name, '')}" for name in {**earlier, **own}}
    return {name: ", ".join(dict.fromkeys(filter(None, text.split(", ")))) for name, text in texts.items()}
