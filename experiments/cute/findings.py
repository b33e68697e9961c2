"""Summarise the database after the sweep, or after a cut: statuses, and the quality of the prior."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import groupby
from pathlib import Path

from build import binaries
from problems import CUTE_SPACES, REFUSED, tasks, thinned, triton_candidates

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Evidence, Measurement, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.search.enumeration import enumerate_space
from gemmtune.engine.store.database import Database

TOPS = (1, 4, 8, 16)


def candidates(device: Device, names: tuple[str, ...], limit: int | None) -> dict:
    """Count candidates and binaries, and name the rule that refuses the problem without a CuTe kernel."""
    of_task, counts = tasks(device, names), defaultdict(dict)
    for task, configs in of_task.items():
        counts[task.problem.name][task.space] = len(thinned(configs, limit))
    refused = {}
    for space in CUTE_SPACES:
        task = Task(Problem.parse(REFUSED), device, space)
        count = enumerate_space(registry.space(space), task)
        refused[space] = {"points": count.points, "feasible": len(count.feasible), "why": dict(count.examples)}
    return {
        "candidates": counts,
        "binaries": len(binaries(of_task, limit)),
        "refused": {REFUSED: refused},
        "triton": {t.problem.name: triton_candidates(t)[1] for t in of_task if t.space == "triton_mm"},
    }


def findings(device: Device, names: tuple[str, ...], database: Path, limit: int | None) -> dict:
    """Return all results per task, and the quality of its prior."""
    objective = registry.objective("latency")
    found = {"tasks": defaultdict(dict), "prior": defaultdict(dict)}
    with Database.open(database, read_only=True) as store:
        for task, configs in tasks(device, names).items():
            name, toolchain = task.problem.name, registry.space(task.space).toolchain()
            known = store.known(task, objective.protocol, Evidence.MEASURED, toolchain)
            found["tasks"][name][task.space] = said(known, thinned(configs, limit))
            times = {c: m.estimate.time_ns for c, m in known.items() if m.status is Status.OK}
            if times and task.space in CUTE_SPACES:
                found["prior"][name][task.space] = prior_shares(task, times)
    return found


def said(known: dict[Config, Measurement], wanted: tuple[Config, ...]) -> dict:
    """Return statuses, every failure with its reason, and the five best configs."""
    failures = defaultdict(list)
    for config, m in known.items():
        if m.status is not Status.OK:
            failures[m.status.value, m.reason].append(config.json)
    ok = sorted((m for m in known.values() if m.status is Status.OK), key=lambda m: m.estimate.time_ns)
    return {
        "candidates": len(wanted),
        "not_measured": sum(config not in known for config in wanted),
        "statuses": dict(Counter(m.status.value for m in known.values())),
        "failures": [{"status": s, "reason": why, "configs": of} for (s, why), of in failures.items()],
        "worst_error_norm": max((m.error_norm for m in ok), default=None),
        "best": [{"us": round(m.estimate.time_ns / 1e3, 3), "config": dict(m.config)} for m in ok[:5]],
    }


def prior_shares(task: Task, times: dict[Config, float]) -> dict:
    """Return the share of the optimum that the best of the prior's top k reaches, by configs and by estimates.

    Configs that the model cannot distinguish have one estimate. `configs` takes them in the order of the space, and
    `estimates` takes all configs of the first k estimates. `drawn` is the mean share of k configs drawn without the
    model.
    """
    prior = registry.space(task.space).prior(task)
    if not prior.times_ns:
        return {"reason": prior.reason}
    optimum, ranked = min(times.values()), sorted(prior.times_ns, key=prior.times_ns.__getitem__)
    groups = [list(of) for _, of in groupby(ranked, key=prior.times_ns.__getitem__)]
    best = [min((times[c] for c in of if c in times), default=None) for of in groups]

    def share(found) -> float | None:
        reached = [t for t in found if t is not None]
        return round(optimum / min(reached), 4) if reached else None

    return {
        "model": prior.model,
        "modelled": len(ranked),
        "estimates_apart": len(groups),
        "configs": {k: share(times.get(c) for c in ranked[:k]) for k in TOPS},
        "estimates": {k: share(best[:k]) for k in TOPS},
        "configs_of_estimates": {k: sum(map(len, groups[:k])) for k in TOPS},
        "drawn": {k: round(drawn_share(sorted(times.values()), k), 4) for k in TOPS},
        "optimum_is_modelled": any(times[c] == optimum for c in ranked if c in times),
    }


def drawn_share(times: list[float], k: int) -> float:
    """Return the mean share of the optimum that the best of k reaches, drawn without return from the sorted times."""
    total, left, reached = len(times), 1.0, 0.0
    for place, time in enumerate(times):
        # Probability that the best of k is at this rank: none before it, itself among them.
        chance = left * min(1.0, k / (total - place))
        reached += chance * times[0] / time
        left -= chance
    return reached
