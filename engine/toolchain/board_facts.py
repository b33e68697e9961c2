"""Read what NVML knows of a board's health, and follow the errors that its driver reports."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

import pynvml


@dataclass(frozen=True, slots=True)
class BoardFacts:
    """Identity, driver and health of one GPU; None where it does not report a value."""

    uuid: str
    """UUID as the driver writes it, `GPU-…`."""
    driver: str
    """Version of the NVIDIA driver."""
    ecc: bool | None
    """Whether memory errors are corrected."""
    uncorrected: int | None
    """Memory errors since the driver was loaded that could not be corrected."""
    mig: bool | None
    """Whether the GPU is divided."""
    most_mhz: int | None
    """Highest SM clock, in MHz, that the GPU may run at."""

    @property
    def faults(self) -> tuple[str, ...]:
        """Lines on what may make this GPU's numbers differ from those of others."""
        return (
            *([f"{self.uuid} has {self.uncorrected} uncorrected memory errors"] if self.uncorrected else []),
            *([f"{self.uuid} is divided (MIG): times of a part are none of the whole"] if self.mig else []),
            *([f"{self.uuid} corrects no memory errors (ECC is off)"] if self.ecc is False else []),
        )


def driver_version() -> str:
    """Return the version of this machine's NVIDIA driver; empty without one."""
    try:
        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return ""


def board_facts(uuid: str) -> BoardFacts | None:
    """Return the facts of the GPU with this UUID; None without a driver or such a GPU."""
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        driver = pynvml.nvmlSystemGetDriverVersion()
    except pynvml.NVMLError:
        return None
    ecc = _asked(lambda: pynvml.nvmlDeviceGetEccMode(handle)[0])
    kind = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
    mig = _asked(lambda: pynvml.nvmlDeviceGetMigMode(handle)[0])
    return BoardFacts(
        uuid=uuid,
        driver=driver,
        ecc=None if ecc is None else bool(ecc),
        uncorrected=_asked(lambda: pynvml.nvmlDeviceGetTotalEccErrors(handle, *kind)),
        mig=None if mig is None else bool(mig),
        most_mhz=_asked(lambda: pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM)),
    )


class XidWatch:
    """Errors (XID) that the driver reports of some GPUs from now on; nothing where it may not be asked."""

    def __init__(self, uuids: Iterable[str]) -> None:
        """Ask the driver to report the errors of these GPUs."""
        self._events = None
        with suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            events = pynvml.nvmlEventSetCreate()
            for uuid in uuids:
                handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
                pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
            self._events = events

    def lines(self) -> list[str]:
        """Return a line per error since the last call, without waiting."""
        found: list[str] = []
        with suppress(pynvml.NVMLError):  # a timeout, once there is none left
            while self._events is not None:
                event = pynvml.nvmlEventSetWait_v2(self._events, 0)
                found.append(f"{pynvml.nvmlDeviceGetUUID(event.device)} reports XID {event.eventData}")
        return found


def _asked(query: Callable[[], int]) -> int | None:
    try:
        return query()
    except pynvml.NVMLError:
        return None
