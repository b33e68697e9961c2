"""Where a campaign's numbers come from: GPUs here or in a cluster, recorded landscapes, or a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gemmtune.engine.campaign import execute as session
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.execution.estimate import EstimateExecutor
from gemmtune.engine.execution.local import LocalExecutor
from gemmtune.engine.execution.replay import ReplayExecutor
from gemmtune.engine.platform.gpu_info import present_device
from gemmtune.engine.processes.process_pool import Notify
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import DeviceError, ToolchainMissing, UsageError
from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.scheduling.task_search import TaskSearch
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.executor import Executor
from gemmtune.engine.seams.pruner import Pruner
from gemmtune.engine.store.landscapes.embedded import embedded

if TYPE_CHECKING:
    from gemmtune.engine.execution.ray.cluster import Cluster  # imports ray, which is optional

__all__ = ["connected", "origin"]


def origin(
    plan: Plan,
    wanted: Device | None,
    files: Sequence[Path],
    builders: int | None,
    cluster: Cluster | None,
    notify: Notify,
) -> tuple[Device, list[TaskSearch], Executor]:
    """The GPU where there is one, recorded landscapes where there is none or where they are asked for.

    A device that is named, and neither here nor recorded, is tuned on paper.
    """
    present = None if files else _clustered_device(cluster, wanted) if cluster else present_device()
    if present is not None:
        if wanted not in (None, present):
            return _on_paper(plan, wanted, builders, notify, f"the GPU here is {present.name} ({present.sku})")
        if not plan.problems:
            plan = replace(plan, problems=_recorded_problems(plan))
        searches = session.measured_searches(plan, present)
        protocol = registry.objective(plan.objective).protocol
        return present, searches, _executor(cluster, present, searches, protocol, builders, _pruners(plan), notify)
    landscapes = session.completed(session.read_all(list(files) or embedded()), plan, wanted)
    target = session.replayed_device(landscapes)
    if wanted not in (None, target):
        if not files:
            absent = f"there is no GPU here and the recorded landscapes are of {target.sku}"
            return _on_paper(plan, wanted, builders, notify, absent)
        raise DeviceError(f"--device {wanted.sku}, but the landscapes are of {target.sku}")
    recorded = {landscape.context["space"] for landscape in landscapes}
    missing = ", ".join(name for name in plan.spaces if name not in recorded)
    if wanted is not None and missing and not files:
        return _on_paper(
            plan, wanted, builders, notify, f"there is no GPU here and nothing is recorded in space {missing}"
        )
    return target, session.replayed_searches(plan, target, landscapes), _replay_fleet(cluster, landscapes, plan, notify)


def connected(place: str, ray_address: str | None) -> Cluster | None:
    """The Ray cluster that `--fleet` names; None for this machine's own processes.

    Args:
        place: local, ray or ray://HOST:PORT.
        ray_address: the cluster that `ray` stands for; by default one that runs here, or a new one of this machine.

    Raises:
        UsageError: it names nothing, or nothing answers there.
        ToolchainMissing: it names Ray, which is not installed.
    """
    if place == "local":
        return None
    if place != "ray" and not place.startswith("ray://"):
        raise UsageError(f"no fleet {place!r}; known: local, ray, ray://HOST:PORT")
    try:
        from gemmtune.engine.execution.ray.cluster import Cluster
    except ImportError:
        raise ToolchainMissing(f"--fleet {place} needs Ray: pip install 'gemmtune[ray]'") from None
    return Cluster(ray_address if place == "ray" else place)


def _clustered_device(cluster: Cluster, wanted: Device | None) -> Device | None:
    """The kind of GPU in the cluster that is wanted, or the only one; None where it has no GPU."""
    devices = cluster.devices()
    skus = list(dict.fromkeys(device.sku for device in devices))
    if wanted is not None and wanted.sku in skus:
        return wanted
    if len(skus) > 1:
        raise DeviceError(f"the cluster has {' and '.join(skus)}, and a campaign is of one: choose it with --device")
    return devices[0] if devices else None


def _executor(
    cluster: Cluster | None,
    device: Device,
    searches: Sequence[TaskSearch],
    protocol: str,
    builders: int | None,
    pruners: Mapping[str, Pruner],
    notify: Notify,
) -> Executor:
    """Builders and workers, here or in the cluster."""
    if cluster is None:
        return LocalExecutor(_spaces(searches), protocol, builders=builders, pruners=pruners, notify=notify)
    from gemmtune.engine.execution.ray.executor import RayExecutor

    return RayExecutor(
        cluster, device.sku, _spaces(searches), protocol, builders=builders, pruners=pruners, notify=notify
    )


def _replay_fleet(
    cluster: Cluster | None, landscapes: Sequence[Landscape], plan: Plan, notify: Notify
) -> ReplayExecutor:
    """What answers from landscapes: in this process, or in the cluster's actors, one a core."""
    if cluster is None:
        return ReplayExecutor(landscapes, {name: registry.pruner(name) for name in plan.pruners})
    if plan.pruners:
        raise UsageError(f"--pruner {plan.pruners[0]} replays in this process: leave out --fleet")
    from gemmtune.engine.execution.ray.simulation import SimulatedExecutor

    return SimulatedExecutor(landscapes, cluster, workers=max(1, cluster.nodes()[0].cpus), notify=notify)


def _on_paper(
    plan: Plan, wanted: Device, builders: int | None, notify: Notify, absent: str
) -> tuple[Device, list[TaskSearch], Executor]:
    try:
        searches = session.estimated_searches(plan, wanted)
    except (UsageError, ToolchainMissing) as error:
        raise DeviceError(f"--device {wanted.sku}, but {absent}; nor can it be estimated: {error}") from None
    return (
        wanted,
        searches,
        EstimateExecutor(_spaces(searches), builders=builders, pruners=_pruners(plan), notify=notify),
    )


def _spaces(searches: Sequence[TaskSearch]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(search.task.space for search in searches))


def _pruners(plan: Plan) -> dict[str, Pruner]:
    """The plan's pruners, for an executor that builds.

    Raises:
        UsageError: one judges by launches, which no such executor shows.
    """
    pruners = {name: registry.pruner(name) for name in plan.pruners}
    for name, pruner in pruners.items():
        if pruner.judges_launches:
            raise UsageError(
                f"--pruner {name} judges the launches of recorded landscapes; on a GPU every launch races against the "
                f"task's best already: leave it out, or add --replay FILE"
            )
    return pruners


def _recorded_problems(plan: Plan) -> tuple[Problem, ...]:
    landscapes = session.read_all(embedded())
    found = (x.problem for x in landscapes if x.context.get("space") in plan.spaces and x.problem is not None)
    return tuple(dict.fromkeys(found))
