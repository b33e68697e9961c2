"""Choose where kernels are built and measured: on this machine, or in a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from gemmtune.engine.execution.local import LocalExecutor
from gemmtune.engine.processes.process_pool import Notify, log_notice
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import DeviceError, UsageError
from gemmtune.engine.seams.executor import Executor
from gemmtune.engine.toolchain.gpu_info import present_device, why_no_gpu
from gemmtune.engine.toolchain.installed import require_extra

if TYPE_CHECKING:
    from gemmtune.engine.execution.ray.cluster import Cluster  # imports ray, which is optional

LOCAL = "local"
"""Name of this machine, which stands for its visible GPUs."""


class Hosts:
    """The processes that build and measure: of this machine, or of a Ray cluster."""

    def __init__(self, name: str = LOCAL, ray_address: str | None = None, notify: Notify = log_notice) -> None:
        """Connect to the hosts.

        Args:
            name: local, ray, or ray://HOST:PORT.
            ray_address: the cluster that `ray` stands for; by default one that runs here, or a new one of this machine.
            notify: called with lines for a person.

        Raises:
            UsageError: no fleet has that name, or the cluster cannot be reached.
            ToolchainMissing: Ray is not installed.
        """
        self.name = name
        self.cluster: Cluster | None = None
        """The Ray cluster; None for this machine's own processes."""
        if name == LOCAL:
            return
        if name != "ray" and not name.startswith("ray://"):
            raise UsageError(f"no fleet {name!r}; known: local, ray, ray://HOST:PORT")
        require_extra("ray", f"--fleet {name}", "ray")
        from gemmtune.engine.execution.ray.cluster import Cluster

        self.cluster = Cluster(ray_address if name == "ray" else name, notify=notify)

    def device(self, wanted: Device | None = None) -> Device | None:
        """Return the hosts' GPU model: of a cluster with several the one that is wanted; None where it has no GPU.

        Raises:
            DeviceError: the cluster has several models, and none or another one is wanted.
        """
        if self.cluster is None:
            return present_device()
        devices = self.cluster.devices(wanted)
        skus = list(dict.fromkeys(device.sku for device in devices))
        if wanted is not None and wanted.sku in skus:
            return wanted
        if len(skus) > 1:
            raise DeviceError(f"the cluster has {' and '.join(skus)}, and a campaign is of one: name the device")
        return devices[0] if devices else None

    def require_device(self, command: str, wanted: Device | None = None, way_out: str = "") -> Device:
        """Return the hosts' GPU model for a command that measures, and leave the hosts where there is none.

        Raises:
            DeviceError: the hosts have no GPU, or several models of which none is wanted.
        """
        try:
            if (device := self.device(wanted)) is not None:
                return device
            why = why_no_gpu() if self.cluster is None else "there is no GPU in the Ray cluster"
            raise DeviceError(f"{command} measures, and {why}{way_out}")
        except DeviceError:
            self.close()
            raise

    def executor(self, device: Device) -> Callable[..., Executor]:
        """Return the function that opens an executor on GPUs of a model; the executor leaves the hosts when closed."""
        if self.cluster is None:
            return LocalExecutor
        from gemmtune.engine.execution.ray.executor import RayExecutor

        return partial(RayExecutor, self.cluster, device)

    def close(self) -> None:
        """Leave the cluster, and end it if it was started here; an executor that was opened does so itself."""
        if self.cluster is not None:
            self.cluster.close()


def require_lockable(clock_mhz: int | None, fleet: str) -> None:
    """Raise UsageError where clocks are to be locked and the GPUs are not this machine's."""
    if clock_mhz is not None and fleet != LOCAL:
        raise UsageError(f"locked clocks are for GPUs of this machine, and fleet {fleet} measures on a cluster's")
