"""Samplers replayed on recorded landscapes, and compared."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from itertools import accumulate, repeat
from math import inf, isfinite
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gemmtune.engine.api.landscapes import LandscapeSource, read_sources
from gemmtune.engine.api.output_folder import folder_of, make_folder, write_all
from gemmtune.engine.io.arguments import checks_arguments
from gemmtune.engine.io.numbers import checked
from gemmtune.engine.records.errors import LandscapeError, ToolchainMissing, UsageError
from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.report.progress.display import progress_bar
from gemmtune.engine.report.studies import comparison_report, study_report
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.store.dataframe import dataframe
from gemmtune.engine.store.landscapes.landscape_file import embedded, read_landscapes
from gemmtune.engine.studies.comparison import Comparison, compare, curves_over_seconds
from gemmtune.engine.studies.sampler_study import (
    Replay,
    SamplerLike,
    StudyResult,
    labels,
    replays,
    sampler_label,
    searchable,
    study_result,
)
from gemmtune.engine.studies.study_file import (
    StudySettings,
    code_of,
    landscape_hash,
    read_record,
    replays_of,
    study_record,
    versions_with,
    write_record,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


@dataclass(eq=False, repr=False)
class Study:
    """Samplers on the same landscapes, with the same budget and seeds.

    A search is scored by the recorded optimum over the best time found: 1 at the optimum, 0 before the first success.

    Example:
        >>> import gemmtune as gt
        >>> study = gt.replay(gt.landscapes("h200", space="triton_mm")[0], sampler="random", budget=32, seeds=5)
        >>> 0.8 < study.fraction_of_optimum["random"] <= 1
        True
        >>> figure = study.plot()
    """

    landscapes: Sequence[Landscape]
    """The landscapes that were searched, in order."""
    found: Mapping[str, Sequence[Replay]]
    """Trials of each sampler by its name, a campaign per seed."""
    budget: int
    """Evaluations per search, failures included."""
    seeds: int
    """Searches per sampler and landscape, with seeds 0 to seeds - 1."""
    settings: Mapping[str, Any]
    """Further arguments of `replay`, by name: batch, cold, apart and noise."""
    code: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Module and name of each sampler's class, and the hash of its module's source, by the sampler's name."""
    versions: Mapping[str, str] = field(default_factory=partial(versions_with, {}))
    """Versions of Python and packages that searched, in their order."""
    written: list[Path] = field(default_factory=list)
    """Files of the last `save`."""
    notes: list[str] = field(default_factory=list)
    """Lines on files that the last `save` could not write."""

    @property
    def samplers(self) -> tuple[str, ...]:
        """Names of the samplers, in the order given."""
        return tuple(self.found)

    @cached_property
    def results(self) -> Mapping[str, StudyResult]:
        """Fraction of the optimum after the whole budget per landscape, by sampler."""
        return {
            name: study_result(self.landscapes, name, self.budget, campaigns) for name, campaigns in self.found.items()
        }

    @property
    def fraction_of_optimum(self) -> dict[str, float]:
        """Mean over landscapes and seeds, by sampler, from 0 to 1."""
        return {name: result.fraction_of_optimum for name, result in self.results.items()}

    @cached_property
    def comparison(self) -> Comparison:
        """Best-so-far curves with their 95 % intervals, and the performance score P, by sampler and landscape."""
        return compare(self.landscapes, self.found, self.budget)

    def summary(self, width: int | None = None) -> str:
        """Return the results as text; several samplers side by side, in at most `width` columns."""
        if len(self.found) == 1:
            return study_report(next(iter(self.results.values())), self.settings).to_text()
        return comparison_report(self.comparison, self.settings).to_text(width)

    def plot(self, over: Literal["evaluations", "seconds"] = "evaluations") -> Figure:
        """Return the best-so-far curves as a matplotlib figure; a notebook draws it.

        Args:
            over: "seconds" draws each landscape over its recorded seconds, builds and failures included, and the CPU
                seconds of the sampler on this machine. A study that was read from a file has the recorded ones alone.

        Raises:
            LandscapeError: seconds are wanted, and a landscape has no recorded ones.
        """
        from gemmtune.engine.report.html.comparison_page import curves_picture, seconds_picture

        if over == "seconds":
            return seconds_picture(curves_over_seconds(self.landscapes, self.found))
        return curves_picture(self.comparison)

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write study.json, comparison.json, report.html and curves.png to `folder`; return their paths.

        `read_study` reads the first: landscapes by their hashes, versions, seeds, and every trial. Without matplotlib
        or jinja2, the first two alone; `notes` says what to install.

        Raises:
            UsageError: the folder cannot be written.
        """
        settings = StudySettings(**self.settings)
        record = study_record(self.landscapes, self.code, self.found, self.budget, settings, self.versions)
        results = {"study.json": write_record(record)}
        results |= {"comparison.json": json.dumps(self.to_json(), indent=1) + "\n"}
        self.written = write_all(results, Path(folder))  # before anything is drawn
        try:
            from gemmtune.engine.report.html.comparison_page import comparison_html, curves_png
        except ToolchainMissing as missing:
            self.notes = [f"no report.html and curves.png: {missing}"]
            return self.written
        drawn: dict[str, str | bytes] = {
            "report.html": comparison_html(self.comparison, self.settings, self._provenance()),
            "curves.png": curves_png(self.comparison),
        }
        self.written += write_all(drawn, Path(folder))
        return self.written

    @checks_arguments
    def extend(
        self,
        sampler: SamplerLike | Iterable[SamplerLike],
        *,
        workers: int = 1,
        out: str | os.PathLike[str] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Study:
        """Return the study with further samplers, searched as the others were; arguments and errors as of `replay`.

        Raises:
            UsageError: the study has a sampler of that name.
        """
        samplers = [sampler] if isinstance(sampler, str | type) else list(sampler)
        if both := self.found.keys() & _chosen(samplers, workers).keys():
            raise UsageError(f"the study has sampler {min(both)} already")
        if out is not None:
            make_folder(folder_of(out))
        options = {**self.settings, "budget": self.budget, "seeds": self.seeds, "workers": workers}
        added = replay(self.landscapes, samplers, **options, progress=progress)
        found, code = {**self.found, **added.found}, {**self.code, **added.code}
        versions = versions_with(self.versions)
        study = Study(self.landscapes, found, self.budget, self.seeds, self.settings, code, versions)
        if out is not None:
            study.save(out)
        return study

    def _provenance(self) -> list[str]:
        """Return what the landscapes say of their origin: devices, spaces, toolchains and dates."""
        fields = ("device", "space", "toolchain", "date")
        found = [sorted({each.context[name] for each in self.landscapes if name in each.context}) for name in fields]
        return [", ".join(values) for values in found if values]

    def to_json(self) -> dict[str, object]:
        """Return the curves, their intervals and P as one JSON object."""
        return {**self.comparison.to_json(), **self.settings}

    def to_dataframe(self) -> DataFrame:
        """Return a pandas DataFrame with one line per evaluation: its time in ns, and the best so far.

        `wall_seconds` and `gpu_seconds` are the recorded cost of the search by then. `sampler_seconds` are the CPU
        seconds of the sampler until it asked for this config; they are not in a study that was read from a file.

        Raises:
            ToolchainMissing: pandas is not installed.
        """
        return dataframe(self._evaluations())

    def _evaluations(self) -> Iterable[Mapping[str, object]]:
        names = labels(self.landscapes)
        for sampler, found in self.found.items():
            for seed, trials_of in enumerate(found):
                times = getattr(trials_of, "sampler_seconds", [repeat(None)] * len(names))
                for name, landscape, trials, own in zip(names, self.landscapes, trials_of, times, strict=True):
                    best = accumulate((inf if trial.score is None else trial.score for trial in trials), min)
                    points = [landscape.points[trial.config] for trial in trials]
                    wall, gpu = (accumulate(map(attrgetter(f"{of}_seconds"), points)) for of in ("wall", "gpu"))
                    found_at = zip(trials, best, wall, gpu, own, strict=False)
                    for evaluation, (trial, best_ns, wall_seconds, gpu_seconds, own_seconds) in enumerate(found_at, 1):
                        yield {
                            "sampler": sampler,
                            "landscape": name,
                            "seed": seed,
                            "evaluation": evaluation,
                            "wall_seconds": wall_seconds,
                            "gpu_seconds": gpu_seconds,
                            "sampler_seconds": own_seconds,
                            "status": trial.status.value,
                            "time_ns": trial.score,
                            "fraction_of_optimum": landscape.optimum_ns / best_ns if isfinite(best_ns) else 0.0,
                        }


@checks_arguments
def replay(
    sources: LandscapeSource | Iterable[LandscapeSource],
    sampler: SamplerLike | Iterable[SamplerLike] = "transfer",
    *,
    budget: int = 64,
    seeds: int = 10,
    batch: int = 8,
    workers: int = 1,
    cold: bool = False,
    apart: bool = False,
    noise: bool = False,
    out: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Study:
    """Search recorded landscapes with one sampler or several, once per seed, without a GPU.

    The searches of one seed are a campaign in the order of the landscapes: a sampler that learns is given what the
    earlier ones found. Landscapes with a single config, such as those of the vendor library, are left out.

    Args:
        sources: landscapes, or devices and files as `landscapes` takes them.
        sampler: registered names and classes derived from `Sampler`.
        budget: evaluations per search, failures included, at least 1.
        seeds: searches per landscape, with seeds 0 to seeds - 1.
        batch: configs that a sampler is asked for at once.
        workers: processes; the result does not depend on their number. A class from a notebook needs workers=1.
        cold: keep the starting points of the recorded space from the sampler.
        apart: let no search learn from those of other landscapes.
        noise: tell the sampler one recorded launch of a config in place of its recorded time. The study is of recorded
            times as before: the best one among the configs that a search asked for.
        out: folder for study.json, comparison.json, report.html and curves.png; by default nothing is written.
        progress: called with the number of searches done and their total; by default a bar on standard error, or a line
            every ten seconds.

    Raises:
        UnknownPlugin: no sampler has that name.
        UsageError: a number is below 1, two samplers share a name, or `out` cannot be written.
        LandscapeError: a landscape is malformed or given twice, or none has two feasible configs; or `noise` is wanted,
            and a config that is ok has no recorded launches.

    Example:
        >>> import gemmtune as gt
        >>> class InOrder(gt.Sampler):
        ...     def __init__(self, search):
        ...         super().__init__(search)
        ...         self.left = list(search.feasible)
        ...     def ask(self, count):
        ...         batch, self.left = self.left[:count], self.left[count:]
        ...         return batch
        ...     def tell(self, trials):
        ...         pass
        >>> study = gt.replay("h200", sampler=[InOrder, "random"], budget=16, seeds=3)
        >>> study.samplers
        ('InOrder', 'random')
        >>> study.fraction_of_optimum["InOrder"] < study.fraction_of_optimum["random"]
        True
    """
    counts = {"budget": budget, "seeds": seeds, "batch": batch, "workers": workers}
    for name, value in counts.items():
        checked(value, name, int, least=1)
    chosen = _chosen([sampler] if isinstance(sampler, str | type) else sampler, workers)
    searched = searchable(read_sources(sources))
    for digest, times in Counter(map(landscape_hash, searched)).items():
        if times > 1:
            name = next(each.name for each in searched if landscape_hash(each) == digest)
            raise LandscapeError(f"landscape {name} is given {times} times, and would count as {times}: give it once")
    if out is not None:
        make_folder(folder_of(out))
    found: dict[str, list[Replay]] = {}
    of_one, total = len(searched) * seeds, len(chosen) * len(searched) * seeds
    settings: dict[str, Any] = {"batch": batch, "cold": cold, "apart": apart, "noise": noise}
    search = partial(replays, searched, budget=budget, seeds=seeds, workers=workers, **settings)
    with progress_bar("searches", quiet=progress is not None) as bar:
        tell = progress or bar
        for name, one in chosen.items():
            found[name] = list(search(sampler=one, progress=lambda done, _: tell(len(found) * of_one + done, total)))
    study = Study(searched, found, budget, seeds, settings, {name: code_of(one) for name, one in chosen.items()})
    if out is not None:
        study.save(out)
    return study


def read_study(path: str | os.PathLike[str], *sources: LandscapeSource) -> Study:
    """Read the study.json that a study saved, to look at it again or to add a sampler: `study.extend(MySampler)`.

    Args:
        path: the file, or the folder that it is in.
        sources: landscapes as `replay` takes them; by default the files that the study names, and those that ship.

    Raises:
        UsageError: the file is missing, or no study.
        LandscapeError: a landscape is missing, or its outcomes are not those that were searched.

    Example:
        >>> import gemmtune as gt
        >>> import tempfile
        >>> landscape = gt.landscapes("h200", space="triton_mm")[0]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     written = gt.replay(landscape, "random", budget=8, seeds=5, out=folder)
        ...     study = gt.read_study(folder)
        >>> study.extend("exhaustive").samplers
        ('random', 'exhaustive')
    """
    file = Path(path)
    file = file / "study.json" if file.is_dir() else file
    record = read_record(file)
    named = [x for each in dict.fromkeys(x.source for x in record.landscapes) for x in _named(file, each)]
    known = {landscape_hash(x): x for x in (read_sources(sources) if sources else named)}
    for each in record.landscapes:
        if each.sha256 not in known:
            raise LandscapeError(
                f"{file}: no landscape is as {each.name} of {each.source} was: name its file, unchanged"
            )
    landscapes = [known[each.sha256] for each in record.landscapes]
    found, code = replays_of(record, file, landscapes), {n: (x.code, x.sha256) for n, x in record.samplers.items()}
    return Study(landscapes, found, record.budget, len(record.seeds), asdict(record.settings), code, record.versions)


def _named(study: Path, source: str) -> tuple[Landscape, ...]:
    """Return the landscapes of a file that a study names: as it is, beside the study, or among those that ship."""
    paths = (Path(source), study.parent / source, *(path for path in embedded() if path.name == source))
    return next((read_landscapes(path) for path in paths if path.is_file()), ())


def _chosen(samplers: Iterable[SamplerLike], workers: int) -> dict[str, type[Sampler]]:
    """Return the sampler classes by label, in order."""
    chosen: dict[str, type[Sampler]] = {}
    for sampler in samplers:
        name, found = sampler_label(sampler), registry.sampler(sampler) if isinstance(sampler, str) else sampler
        if chosen.setdefault(name, found) is not found:
            raise UsageError(f"two samplers are named {name}: rename one class")
        if workers > 1 and found.__module__ == "__main__" and not hasattr(sys.modules["__main__"], "__file__"):
            raise UsageError(f"workers={workers} processes cannot import {name} from a notebook: take workers=1")
    if not chosen:
        raise UsageError(f"no sampler is named; known: {', '.join(registry.names(Sampler))}")
    return chosen
