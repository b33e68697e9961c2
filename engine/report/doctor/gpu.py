"""Check the GPU: its kind, the templates that Inductor offers on it, and its clocks."""

import os

import pynvml

from gemmtune.engine.records.device import Device
from gemmtune.engine.report.doctor.report import Check, advice, fault, fine
from gemmtune.engine.toolchain.gpu_info import equal_gpus, present_device
from gemmtune.engine.toolchain.installed import install_command
from gemmtune.engine.toolchain.telemetry import Telemetry, gpu_names

_LEAST_SMS = 68
"""SMs that is_big_gpu in torch/_inductor/utils.py requires (`min_sms = 68  # 3080`), in torch 2.11 to 2.15."""


def gpu_checks() -> list[Check]:
    """Check the GPU that would be measured, Inductor and the clocks; without a GPU, that alone."""
    device, named = present_device(), gpu_names()
    if device is None and named:
        silent = f"{named[0]} found, and CUDA does not answer"
        return [
            fault(
                "GPU",
                silent,
                f"{install_command('triton')}, which brings cuda-bindings",
                "look at CUDA_VISIBLE_DEVICES: it may hide the GPU",
            )
        ]
    if device is None:
        nothing = "none, or no driver: nothing can be measured, recorded landscapes answer"
        return [fault("GPU", nothing, "see what nvidia-smi says; in a container, start it with --gpus all")]
    gpus = equal_gpus()
    found = f"{len(gpus)} × {device.name}, {device.arch}, {device.sm_count} SMs, driver {_driver()}"
    return [fine("GPU", found), inductor_check(device), *_clock_checks(gpus[0], device)]


def inductor_check(device: Device) -> Check:
    """Check whether Inductor offers Triton templates on this GPU; otherwise name the ways around with their costs."""
    if device.sm_count >= _LEAST_SMS:
        return fine("Inductor", f"offers its Triton GEMM templates: {device.sm_count} SMs, it asks for {_LEAST_SMS}")
    return advice(
        "Inductor",
        f"offers no Triton GEMM template: {device.sm_count} SMs, is_big_gpu asks for {_LEAST_SMS}; "
        f"it warns 'Not enough SMs to use max_autotune_gemm mode' and takes ATen. Ways around:",
        "a table and its loader, gemmtune_inductor.install(): it adds the template of each row behind that check. "
        "Patches nothing, benchmarks nothing; costs the tuning ahead, and serves the rows alone",
        "an InductorChoices of your own whose get_template_configs adds mm_template: every product is benchmarked "
        "while compiling, seconds each; V.set_choices_handler reaches one thread, and no compile cache notices it",
        "torch._inductor.utils.is_big_gpu = lambda *_: True before the first compile: a private name, to be checked "
        "with each torch; every product of the process is benchmarked while compiling",
        "a Triton kernel of your own as torch.library.triton_op: no fusion with its neighbours, and its backward and "
        "its choice of a config are yours to write",
    )


def _clock_checks(gpu: str, device: Device) -> list[Check]:
    """Check the clocks, and whether this user may lock them; NVML does not say who may, so only root counts."""
    try:
        state, lockable = Telemetry(gpu).read(), _lockable_mhz(gpu)
    except pynvml.NVMLError as error:
        return [advice("clocks", f"NVML: {error}", "times are taken without clocks, temperature and power beside them")]
    now = f"SM {state.sm_clock_mhz} MHz of {device.boost_clock_mhz}, memory {state.memory_clock_mhz} MHz"
    held = ", ".join(state.throttle_reasons)
    cooler = "let it rest, or look at its cooling and its power limit: nvidia-smi -q -d PERFORMANCE"
    clocks = advice("clocks", f"{now}, held back by {held}", cooler) if held else fine("clocks", now)
    relative = "without it gemmtune times relative to the vendor's kernel beside"
    if lockable is None:
        lock = advice("clock lock", "this GPU names no clocks to lock", relative)
    elif os.geteuid() != 0:
        by_root = "nvidia-smi --lock-gpu-clocks=MHZ and --reset-gpu-clocks after, by root"
        lock = advice("clock lock", "needs root", f"{by_root}; {relative}")
    else:
        span = f"{lockable[0]} to {lockable[1]} MHz"
        lock = fine("clock lock", f"--lock-clocks MHZ, {span}, as root; a container may be refused it all the same")
    return [clocks, lock]


def _lockable_mhz(gpu: str) -> tuple[int, int] | None:
    """Return the least and greatest SM clock at the highest memory clock, MHz; None if the GPU does not report them."""
    handle = pynvml.nvmlDeviceGetHandleByUUID(gpu)
    try:
        memory_mhz = pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_MEM)
        clocks = pynvml.nvmlDeviceGetSupportedGraphicsClocks(handle, memory_mhz)
    except pynvml.NVMLError_NotSupported:
        return None
    return (min(clocks), max(clocks)) if clocks else None


def _driver() -> str:
    try:
        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError as error:
        return f"unknown (NVML: {error})"
