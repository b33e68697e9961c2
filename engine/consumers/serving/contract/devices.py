"""Devices that the names of tuned files mean: how the engines spell them, and what a block of them has."""

import re
from dataclasses import dataclass
from functools import cache

from gemmtune.engine.consumers.serving.contract.file_name import Engine, FileName, Kernel
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.errors import DeviceError, did_you_mean

_AMPERE, _ADA, _HOPPER, _B300, _GEFORCE = 166_912, 101_376, 232_448, 232_448, 101_376
"""Bytes of shared memory per block of sm_80, sm_89, sm_90, sm_103 and sm_12x: libcu++'s cuda/__device/arch_traits.h."""
_CUDA_GPUS = "developer.nvidia.com/cuda-gpus"
_MIG = "supported GPUs of NVIDIA's MIG user guide"
_OTHERS = (
    ("A800-SXM", "NVIDIA A800-SXM4-80GB", (8, 0), _AMPERE, "aiwiki.ai/wiki/nvidia_a800: the A100's GA100"),
    ("B300", "NVIDIA B300 SXM6 AC", (10, 3), _B300, _CUDA_GPUS),
    ("GB10", "NVIDIA GB10", (12, 1), _GEFORCE, _CUDA_GPUS),
    ("GB300", "NVIDIA GB300", (10, 3), _B300, _CUDA_GPUS),
    ("H20", "NVIDIA H20", (9, 0), _HOPPER, _MIG),
    ("H20-3e", "NVIDIA H20-3e", (9, 0), _HOPPER, "pull request 1658 of github.com/tile-ai/TileOPs"),
    ("H100-NVL", "NVIDIA H100 NVL", (9, 0), _HOPPER, f"{_MIG}: H100-PCIE of 94 GB"),
    ("H200-NVL", "NVIDIA H200 NVL", (9, 0), _HOPPER, _MIG),
    ("H800", "NVIDIA H800", (9, 0), _HOPPER, "pull request 968 of github.com/ai-dynamo/aiconfigurator"),
    ("L20", "NVIDIA L20", (8, 9), _ADA, "technical.city: AD102, as the L40"),
    ("L40", "NVIDIA L40", (8, 9), _ADA, _CUDA_GPUS),
    ("MI300X", "AMD Instinct MI300X", None, 65_536, "pull request 3257 of github.com/ROCm/aiter"),
    ("MI350X", "AMD Instinct MI350X", None, 163_840, "pull request 119 of github.com/lightseekorg/tokenspeed"),
    ("MI355X", "AMD Instinct MI355X", None, 163_840, "pull request 119 of github.com/lightseekorg/tokenspeed"),
    ("RTX-6000-Ada", "NVIDIA RTX 6000 Ada Generation", (8, 9), _ADA, _CUDA_GPUS),
    ("RTX-PRO-6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition", (12, 0), _GEFORCE, _CUDA_GPUS),
    ("RTX-PRO-6000-Workstation", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", (12, 0), _GEFORCE, _CUDA_GPUS),
    ("RTX-PRO-6000-Max-Q", "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", (12, 0), _GEFORCE, _CUDA_GPUS),
)
"""Devices without a place in the catalogue: sku, driver's name, compute capability, bytes per block, and its source."""


@dataclass(frozen=True, slots=True)
class BlockLimits:
    """Device that files are audited for."""

    sku: str
    """Short name of the device, such as `H20`."""
    name: str
    """Name that the driver reports, `NVIDIA H20`."""
    capability: tuple[int, int] | None
    """Compute capability; None for a GPU of AMD."""
    shared_bytes: int
    """Largest shared memory per block, in bytes."""


@cache
def known_devices() -> tuple[BlockLimits, ...]:
    """Return every known device: the catalogue's, then those of which only the limits of a block are known."""
    full = [BlockLimits(d.sku, d.name, d.capability, d.shared_memory_per_block_bytes) for d in catalogue.devices()]
    return (*full, *(BlockLimits(*fields) for *fields, _ in _OTHERS))


def device_named(sku: str) -> BlockLimits:
    """Return the device of a sku, spelled as `catalogue.device` takes it; raises DeviceError if there is none."""
    try:
        name = catalogue.device(sku).name
        return next(each for each in known_devices() if each.name == name)
    except DeviceError:
        found = next((each for each in known_devices() if _fold(sku) in (_fold(each.sku), _fold(each.name))), None)
        if found is None:
            skus = [each.sku for each in known_devices()]
            raise DeviceError(f"no device {sku!r}; {did_you_mean(sku, skus)}known: {', '.join(skus)}") from None
        return found


def device_text(name: str, engine: Engine, kernel: Kernel) -> str:
    """Return a driver's name of a device as the engine writes it into the file names that it looks for."""
    text = re.sub(r"[\s/]", "_", name)
    if engine is Engine.VLLM and kernel is Kernel.MOE and "H200" in text.split("_"):
        return "NVIDIA_H200"  # vLLM has one file for the H200 and its variants
    return text


def device_of(text: str) -> BlockLimits | None:
    """Return the device that a file's device name means, or a variant of it; None if it has neither.

    `NVIDIA_H200_NVL_MIG_1g.18gb` and `NVIDIA_H100` find the H200 NVL and a H100, whose limits per block they share.
    """
    wanted, found = text.split("_"), []
    for device in known_devices():
        words = device.name.split(" ")
        shorter = min(len(words), len(wanted))
        if shorter > 1 and words[:shorter] == wanted[:shorter]:
            found.append(device)
    found.sort(key=lambda device: -len(device.name))
    return found[0] if found else None


def misspelled(name: FileName) -> str | None:
    """Return why no look-up spells a file's device so; None if one may."""
    if not name.device:
        return "it names no device"
    asked = device_text(name.device, name.engine, name.kernel)
    texts = [device_text(each.name, name.engine, name.kernel) for each in known_devices()]
    if asked in texts:
        return None if asked == name.device else f"{name.engine} asks for {asked}, not for {name.device}"
    meant = next((text for text in texts if _fold(text) == _fold(asked)), None)
    if meant is not None or asked != name.device:
        return f"{name.engine} asks for {meant or asked}, not for {name.device}"
    longer = sorted(text for text in texts if text.startswith(f"{asked}_"))
    return f"no driver reports {name.device} alone; {', '.join(longer)} may be meant" if longer else None


def _fold(name: str) -> str:
    return re.sub(r"[\s_/-]", "", name).casefold().removeprefix("nvidia").removeprefix("amd")
