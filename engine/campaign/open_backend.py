"""Choose what answers for a campaign: the GPUs here or in a cluster, recorded landscapes, or a model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from gemmtune.engine.campaign.backend import Backend
from gemmtune.engine.campaign.estimated_backend import estimated_backend
from gemmtune.engine.campaign.measured_backend import measured_backend
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.replayed_backend import (
    completed,
    read_all,
    recorded_device,
    recorded_of,
    replayed_backend,
)
from gemmtune.engine.execution.estimate import EstimateExecutor
from gemmtune.engine.execution.hosts import Hosts, require_lockable
from gemmtune.engine.measure.builder import prepare_builders
from gemmtune.engine.processes.process_pool import Notify, log_notice
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import DeviceError, ToolchainMissing, UsageError
from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.space import Space
from gemmtune.engine.store.landscapes.landscape_file import embedded
from gemmtune.engine.toolchain.gpu_info import why_no_gpu
from gemmtune.engine.toolchain.telemetry import gpu_names


def open_backend(
    plan: Plan,
    *,
    device: Device | None = None,
    landscapes: Sequence[Landscape] = (),
    builders: int | None = None,
    cluster: str = "local",
    ray_address: str | None = None,
    clock_mhz: int | None = None,
    builds: bool = True,
    notify: Notify = log_notice,
) -> Backend:
    """Open the backend that answers for a plan.

    | landscapes named | device              | answers                                             |
    |------------------|---------------------|-----------------------------------------------------|
    | yes              | theirs, or none     | these landscapes                                    |
    | no               | the GPU's, or none  | the GPUs of this machine or of the cluster          |
    | no               | no GPU is there     | the shipped landscapes, where they hold the spaces  |
    | no               | neither of them     | a model of the space: kernels are built, not timed  |

    Args:
        plan: what to tune. Without problems, the recorded ones are tuned.
        device: the device that the table is for; None for the one that is there or was recorded.
        landscapes: landscapes to answer from.
        builders: builder processes; by default one per core that feeds no GPU.
        cluster: local for this machine, ray, or ray://HOST:PORT.
        ray_address: the cluster that `ray` stands for; by default one that runs here, or a new one of this machine.
        clock_mhz: SM clock to lock this machine's GPUs at until the backend is closed.
        builds: whether kernels will have to be built; if so, the imports of builders begin at once.
        notify: called with lines for a person while the campaign runs.

    Raises:
        UsageError: the arguments contradict each other, or nothing is to be tuned here.
        DeviceError: the device can neither be measured nor replayed nor estimated; the message says why.
        LandscapeError: the landscapes do not hold what the plan asks for.
        ToolchainMissing: Ray is not installed, or a space cannot build.
    """
    plan.require_kinds()
    if not landscapes:
        registry.require_registered(Space, plan.spaces)
    require_lockable(clock_mhz, cluster)
    hosts = Hosts(cluster, ray_address, notify)
    if hosts.cluster is None and builds and not landscapes and gpu_names():
        prepare_builders(plan.spaces)
    estimated = partial(_estimated, plan, builders, clock_mhz, notify)
    present = None if landscapes else hosts.device(device)
    if present is not None:
        if device not in (None, present):
            return estimated(device, f"the GPU here is {present.name} ({present.sku})")
        return _measured(plan, present, hosts, builders, clock_mhz, notify)
    found = completed(landscapes or recorded_of(plan), plan.spaces, device)
    recorded = recorded_device(found)
    if device not in (None, recorded):
        if landscapes:
            raise DeviceError(f"device {device.sku} is wanted, but the landscapes are of {recorded.sku}")
        return estimated(device, f"there is no GPU here and the recorded landscapes are of {recorded.sku}")
    spaces = {landscape.context["space"] for landscape in found}
    missing = ", ".join(name for name in plan.spaces if name not in spaces)
    if device is not None and missing and not landscapes:
        return estimated(device, f"there is no GPU here and nothing is recorded in space {missing}")
    notes = _unlocked(clock_mhz, "recorded landscapes answer")
    if hosts.cluster is not None:
        hosts.close()
        why = "Landscapes were named" if landscapes else "No GPU in the Ray cluster"
        notes += (f"{why}; the recorded landscapes answer in this process.",)
    elif not landscapes:
        why = why_no_gpu() if gpu_names() else "No GPU found"
        notes += (f"{why}; using the recorded landscapes.",)
    return replayed_backend(plan, found, notes=notes)


def _measured(
    plan: Plan, device: Device, hosts: Hosts, builders: int | None, clock_mhz: int | None, notify: Notify
) -> Backend:
    open_executor = partial(
        hosts.executor(device),
        protocol_name=plan.plugins.objective.protocol,
        builders=builders,
        pruners=plan.plugins.pruners,
        evenly=plan.limits.may_end_early,
        notify=notify,
    )
    recorded = () if plan.problems else read_all(embedded())
    own = dict.fromkeys(x.problem for x in recorded if x.context.get("space") in plan.spaces and x.problem)
    problems = () if plan.problems else (*own, *plan.held_out)
    return measured_backend(plan, device, open_executor, problems=problems, clock_mhz=clock_mhz, notify=notify)


def _estimated(
    plan: Plan, builders: int | None, clock_mhz: int | None, notify: Notify, device: Device, reason: str
) -> Backend:
    open_executor = partial(EstimateExecutor, builders=builders, pruners=plan.plugins.pruners, notify=notify)
    found = f"{device.name} found, but no CUDA" if device.name in gpu_names() else f"No {device.name} here"
    notes = _unlocked(clock_mhz, "a model answers")
    try:
        return estimated_backend(plan, device, found, open_executor=open_executor, notes=notes)
    except (UsageError, ToolchainMissing) as error:
        way_out = "run this where such a GPU is, or leave out --device"
        raise DeviceError(f"no {device.sku} to tune on: {reason}; {error}; {way_out}") from None


def _unlocked(clock_mhz: int | None, answers: str) -> tuple[str, ...]:
    """Return the line that clocks stay as they are, where a lock was asked for."""
    return () if clock_mhz is None else (f"clocks are not locked: {answers}, nothing is measured",)
