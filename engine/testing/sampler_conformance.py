"""Conformance checks for samplers, which need only the sampler's class."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from gemmtune.engine.records.config import Config, Param, Value
from gemmtune.engine.records.measurement import Status, Trial
from gemmtune.engine.records.search import Search, SourceTask
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.testing._contract import require, require_repeat, run_checks

_Outcome = Callable[[Config], Trial]


def check_sampler(sampler: type[Sampler]) -> None:
    """Run whole searches with a sampler, and check every promise of its contract.

    Each search checks that the sampler asks feasible configs, none twice and no more than it may. It must ask some
    while any is left. One check runs only for a `multi_objective` sampler, one only for a sampler that `learns`. Most
    of the searches have no features, as some spaces have none.

    Example:
        >>> from gemmtune.engine.search.samplers.random import RandomSampler
        >>> check_sampler(RandomSampler)

    Raises:
        ContractError: the sampler broke its contract; the message says how.
    """
    run_checks(CHECKS, sampler, Sampler)


def example_search(budget: int = 12, seeds: Sequence[int] = (20, 3), objectives: int = 1) -> Search:
    """Return a search of 28 feasible configs with gaps between them, an unordered parameter, and a constant one.

    Args:
        budget: evaluations the search may spend.
        seeds: positions of the seeds in the feasible set.
        objectives: number of scores per trial.
    """
    params = (
        Param("tile", (16, 32, 64, 128)),
        Param("stages", (2, 3, 4, 5)),
        Param("kind", ("n", "t"), ordered=False),
        Param("warps", (4,)),
    )
    feasible = [c for c in _product(params) if c.integer("tile") * c.integer("stages") <= 400]
    return Search(params, tuple(feasible), tuple(feasible[i] for i in seeds), budget, 7, objectives)


def exhausts_the_feasible_set(sampler: type[Sampler]) -> None:
    """Check that a sampler asked beyond its budget asks every config once, in batches of 1 and of 7."""
    search = example_search()
    for batch in (1, 7):
        asked = _drive(sampler, search, _bowl, batch=batch)
        require(len(asked) == len(search.feasible), sampler, f"asked {len(asked)} of {len(search.feasible)} configs")


def survives_failures_and_ties(sampler: type[Sampler]) -> None:
    """Check that the search continues with some failures, with nothing but failures, and with equal scores."""
    _drive(sampler, example_search(), lambda config: _with_failures(_bowl(config)), batch=3)
    equal: tuple[_Outcome, ...] = (
        lambda config: Trial(config, Status.RUN_FAILED, None),
        lambda config: Trial(config, Status.OK, 5e4),
    )
    for outcome in equal:
        _drive(sampler, example_search(), outcome, batch=3, most=18)


def searches_without_seeds(sampler: type[Sampler]) -> None:
    """Check that the search works without seeds."""
    _drive(sampler, example_search(seeds=()), _bowl, batch=3)


def searches_small_spaces(sampler: type[Sampler]) -> None:
    """Check searches of no config, one config, one parameter, and values of every type."""
    spaces: tuple[Mapping[str, tuple[Value, ...]], ...] = (
        {"tile": (64,), "kind": ("a",)},
        {"tile": tuple(2**i for i in range(14))},
        {"kind": tuple("abcdefghijklmn")},
        {"swap": (False, True), "split": (0.25, 0.5, 1.0), "kind": ("n", "t")},
    )
    for values in spaces:
        for batch in (1, 4):
            _drive(sampler, _grid(values), _flat, batch=batch)
    _drive(sampler, Search((Param("tile", (1, 2)),), (), (), budget=8, seed=0), _flat, batch=2)


def repeats_itself_elsewhere(sampler: type[Sampler]) -> None:
    """Check that two processes ask one sequence, whatever their own random state and seed of hashes."""
    require_repeat(_sequence, sampler, "asked another sequence in a fresh process, with another PYTHONHASHSEED")


def repeats_itself_here(sampler: type[Sampler]) -> None:
    """Check that two runs of one process ask one sequence, whatever its random state."""
    sequences = []
    for state in (1, 2):
        random.seed(state)
        np.random.seed(state)
        sequences.append(_sequence(sampler))
    require(sequences[0] == sequences[1], sampler, "asked another sequence in a second run of the same search")


def resumes_from_a_database(sampler: type[Sampler]) -> None:
    """Check that a new instance, told the recorded trials, continues as the first one did."""
    whole = _drive(sampler, example_search(), _bowl, batch=4, most=24)
    database = {config: _bowl(config) for config in whole[:16]}
    resumed = sampler(example_search())
    for start in range(0, 16, 4):
        again = list(resumed.ask(4))
        require(
            again == whole[start : start + 4], sampler, f"asked {again} where {whole[start : start + 4]} is recorded"
        )
        resumed.tell([database[config] for config in again])
    require(list(resumed.ask(4)) == whole[16:20], sampler, "asked other configs after it was resumed")


def searches_two_objectives(sampler: type[Sampler]) -> None:
    """Check that two conflicting scores with failures do not end the search, and that two runs ask one sequence."""
    if not sampler.multi_objective:
        return
    _drive(sampler, example_search(objectives=2), lambda config: _with_failures(_two(config)), batch=3, most=12)
    sequences = [_drive(sampler, example_search(objectives=2), _two, batch=4, most=8) for _ in range(2)]
    require(sequences[0] == sequences[1], sampler, "asked another sequence in a second run of two objectives")


def learns_from_a_history(sampler: type[Sampler]) -> None:
    """Check that two runs with a history, failures included, ask one sequence."""
    if not sampler.learns:
        return
    others = example_search()
    failures = [Trial(config, status, None) for config, status in zip(others.feasible, Status, strict=False)]
    works = [_bowl(config) for config in others.feasible[len(Status) :]]
    failed = [Trial(trial.config, Status.RUN_FAILED, None) for trial in works]
    sources = tuple(SourceTask(tuple(trials), _features) for trials in ([*failures[1:], *works], failed, works[:1], []))
    search = replace(example_search(), features=_features, history=sources)
    sequences = [_drive(sampler, search, _bowl, batch=3, most=15) for _ in range(2)]
    require(sequences[0] == sequences[1], sampler, "asked another sequence in a second run with a history")


CHECKS: tuple[Callable[[type[Sampler]], None], ...] = (
    exhausts_the_feasible_set,
    survives_failures_and_ties,
    searches_without_seeds,
    searches_small_spaces,
    repeats_itself_here,
    repeats_itself_elsewhere,
    resumes_from_a_database,
    searches_two_objectives,
    learns_from_a_history,
)
"""Checks that `check_sampler` runs, in order."""


def _drive(sampler: type[Sampler], search: Search, outcome: _Outcome, *, batch: int, most: int = 1000) -> list[Config]:
    """Ask and tell until every config, or `most` of them, has been asked; raise at the first broken promise."""
    running = sampler(search)
    require(getattr(running, "search", None) is search, sampler, "does not call super().__init__(search)")
    left = set(search.feasible)
    asked: list[Config] = []
    while len(asked) < most:
        configs = running.ask(batch)
        listed = isinstance(configs, list | tuple) and all(isinstance(config, Config) for config in configs)
        require(listed, sampler, f"returned {repr(configs)[:100]} from ask, not a list of configs")
        require(len(configs) <= batch, sampler, f"asked {len(configs)} configs where {batch} were asked for")
        require(bool(configs) or not left, sampler, f"asked nothing, {len(left)} configs are left")
        if not configs:
            break
        for config in configs:
            require(
                config in left, sampler, f"asked {config}, {'again' if config in asked else 'which is not feasible'}"
            )
            left.remove(config)
            asked.append(config)
        running.tell([outcome(config) for config in configs])
    return asked


def _sequence(sampler: type[Sampler]) -> str:
    return "\n".join(config.json for config in _drive(sampler, example_search(), _bowl, batch=4, most=16))


def _grid(values: Mapping[str, tuple[Value, ...]]) -> Search:
    params = tuple(Param(name, those, ordered=not isinstance(those[0], str)) for name, those in values.items())
    return Search(params, tuple(_product(params)), (), budget=8, seed=7)


def _product(params: Sequence[Param]) -> list[Config]:
    names = [param.name for param in params]
    return [Config(dict(zip(names, values, strict=True))) for values in product(*(param.values for param in params))]


def _steps(config: Config) -> float:
    return 1 + abs(math.log2(config.integer("tile")) - 6) + abs(config.integer("stages") - 4) + (config["kind"] == "n")


def _bowl(config: Config) -> Trial:
    """Return a trial whose score is best at tile 64, 4 stages and kind t."""
    return Trial(config, Status.OK, 1e4 * _steps(config))


def _two(config: Config) -> Trial:
    """Return a trial with the time of `_bowl` and an energy that falls as the tile grows."""
    time_ns = 1e4 * _steps(config)
    return Trial(config, Status.OK, time_ns, (time_ns, 1 / config.integer("tile")))


def _with_failures(trial: Trial) -> Trial:
    """Replace the trials of large tiles by failures of every kind."""
    failures = [status for status in Status if status is not Status.OK]
    if trial.config.integer("tile") < 64:
        return trial
    return Trial(trial.config, failures[trial.config.integer("stages") % len(failures)], None)


def _features(config: Config) -> Mapping[str, float]:
    """Return two features of a config."""
    return {"area": math.log2(config.integer("tile") * config.integer("stages")), "problem": 7.0}


def _flat(config: Config) -> Trial:
    """Return a trial whose score depends only on the config."""
    return Trial(config, Status.OK, 1e4 + int(config.digest[:4], 16))
