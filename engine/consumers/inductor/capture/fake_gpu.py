"""Tensors without data on a GPU that need not be present. Imports torch and triton.

Code that runs within `fake_gpu` sees what it would see on the device: tensors on cuda:0, its name, its capability.
Every tensor that it makes there has sizes and no data, so a model of any size fits. Values of small ones are known as
far as they follow from others that are (data_on_cpu).
"""

import contextlib
import ctypes
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch._dynamo.variables.optimizer import OptimizerVariable
from torch._inductor.fx_passes.joint_graph import UniformValueConstantFolder
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, run_fallback_kernel, unset_fake_temporarily
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._triton import has_triton

from gemmtune.engine.consumers.inductor.capture.data_on_cpu import DataOnCpu, OnCpu
from gemmtune.engine.consumers.inductor.capture.gpu_kernels import kernels_of_a_gpu
from gemmtune.engine.consumers.inductor.capture.gradients import backward, grad
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import ToolchainMissing
from gemmtune.engine.toolchain.absent_gpu import target

GPU = torch.device("cuda", 0)
"""Device of the tensors."""

_CUDA = 1  # c10::DeviceType
_REGISTRY = "_ZN3c104impl26device_guard_impl_registryE"
_REGISTER = "_ZN3c104impl19registerDeviceGuardENS_10DeviceTypeEPKNS0_24DeviceGuardImplInterfaceE"
_ENSURE = "_ZN3c104impl24ensureCUDADeviceGuardSetEv"
_TOOLKIT = "13.0"  # version of CUDA in a torch that was built without
_METHODS = 64  # more than the interface of a guard has
_FOLDER = "torch._inductor.fx_passes.joint_graph.UniformValueConstantFolder"
_fill_truncated: Callable[..., torch.Tensor] = torch.nn.init._no_grad_trunc_normal_


@contextlib.contextmanager
def device_answers(device: Device) -> Iterator[None]:
    """Answer torch's and Triton's questions about the device from its record; tensors stay what they are."""
    random_state = torch.zeros(0, dtype=torch.uint8, device="cpu")
    answers = {
        "torch.version.cuda": torch.version.cuda or _TOOLKIT,
        "torch.cuda.is_available": lambda: True,
        "torch.cuda.is_initialized": lambda: True,
        "torch.cuda.device_count": lambda: 1,
        "torch.cuda.is_bf16_supported": lambda *_, **__: device.capability >= (8, 0),
        "torch.cuda.is_tf32_supported": lambda: device.capability >= (8, 0),
        "torch.cuda.get_rng_state": lambda *_: random_state,
        "torch.cuda.set_rng_state": lambda *_: None,
        "torch.cuda.is_current_stream_capturing": lambda: False,
        "torch.cuda.synchronize": lambda *_: None,
        "torch.cuda._exchange_device": lambda _: 0,
        "torch.cuda._maybe_exchange_device": lambda _: 0,
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(target(device))
        for name, answer in answers.items():
            stack.enter_context(patch(name, answer))
        yield


@contextlib.contextmanager
def fake_gpu(device: Device, data: DataOnCpu | None = None) -> Iterator[FakeTensorMode]:
    """Make new tensors without data on a device, and answer torch's questions about the device from its record.

    `data` knows the values of small tensors.

    Raises:
        ToolchainMissing: this torch was built without CUDA, and in a way that allows no device of that name.
    """
    allow_cuda_tensors()
    answers = {
        "torch.utils._triton.has_triton_tma_device": lambda: device.capability >= (9, 0),
        "torch._subclasses.fake_tensor.init_gpu_context": lambda *_: None,
        "torch._subclasses.fake_tensor.run_fallback_kernel": _run_kernel,
        "torch.nn.init._no_grad_trunc_normal_": lambda tensor, *bounds, **named: (
            # it draws again until it reads no value out of bounds
            tensor if isinstance(tensor, FakeTensor) else _fill_truncated(tensor, *bounds, **named)
        ),
        "torch.Tensor.pin_memory": lambda tensor, *_: tensor,
        "torch._subclasses.functional_tensor.FunctionalTensor.cuda": lambda tensor, device=None, *rest, **named: (
            tensor.to(device or GPU, *rest, **named)
        ),
        "torch._inductor.graph.GraphLowering.constant_name": lambda _, name, __: name,
        "torch._inductor.codecache.CacheBase.get_system": lambda: {"hash": "absent"},  # it hashes all of Triton
        "torch._dynamo.repro.after_aot.save_graph_repro": lambda *_, **__: None,  # texts of graphs, for logs
        "torch.fx.experimental.proxy_tensor.unset_fake_temporarily": _with_data_on_cpu,
        f"{_FOLDER}.__init__": _with_data_on_cpu()(UniformValueConstantFolder.__init__),
        f"{_FOLDER}.run": _with_data_on_cpu()(UniformValueConstantFolder.run),
        "torch.autograd.grad": grad,
        "torch.autograd.backward": backward,
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(device_answers(device))
        for name, answer in answers.items():
            stack.enter_context(patch(name, answer))
        stack.enter_context(patch.object(FakeTensorMode, "avoid_device_init", True))
        stack.enter_context(patch.object(torch.nn.Module, "_apply", _convert))
        has_triton.cache_clear()  # it keeps its answer about this machine
        stack.callback(has_triton.cache_clear)
        stack.enter_context(kernels_of_a_gpu())
        shapes = ShapeEnv(allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False)  # while_loop's rule asks
        mode = stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True, shape_env=shapes, static_shapes=True))
        stack.enter_context(patch.object(OptimizerVariable, "call_method", _within(mode)))
        stack.enter_context(data or DataOnCpu())
        yield mode


def allow_cuda_tensors() -> None:
    """Let torch make tensors without data on cuda:0, where it was built without CUDA.

    torch keeps a guard per kind of device, and replaces CUDA's by one without effects where it counts no GPU. A build
    without CUDA has none to ask, so a guard whose methods all return 0 is registered, and torch replaces it.

    Raises:
        ToolchainMissing: this torch allows no device of that name.
    """
    if torch.version.cuda is not None or torch.version.hip is not None:
        return
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
        registry = (ctypes.c_void_p * (_CUDA + 1)).in_dll(library, _REGISTRY)
        register, ensure = getattr(library, _REGISTER), getattr(library, _ENSURE)
    except (OSError, AttributeError, ValueError) as error:
        raise ToolchainMissing(
            f"torch {torch.__version__} was built without CUDA and allows no tensors on it ({error}): capture with a "
            "build for CUDA, which needs no GPU either"
        ) from None
    if registry[_CUDA] is None:
        none = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 0)
        methods = (ctypes.c_void_p * _METHODS)(*[ctypes.cast(none, ctypes.c_void_p).value] * _METHODS)
        guard = ctypes.pointer(ctypes.c_void_p(ctypes.addressof(methods)))
        register.argtypes, register.restype = [ctypes.c_int8, ctypes.c_void_p], None
        register(_CUDA, guard)
        ensure()


def _convert(module: torch.nn.Module, convert: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> object:
    """Replace `Module._apply`, behind `to` and `cuda`, which cannot swap tensors without data in place.

    A parameter that several modules share stays shared: its gradient is the sum of theirs.
    """
    made: dict[torch.nn.Parameter, torch.nn.Parameter] = {}
    for each in module.modules() if recurse else (module,):
        for name, parameter in each._parameters.items():
            if parameter is not None:
                if parameter not in made:
                    with torch.no_grad():
                        made[parameter] = torch.nn.Parameter(convert(parameter), parameter.requires_grad)
                each._parameters[name] = made[parameter]
        for name, buffer in each._buffers.items():
            if buffer is not None:
                each._buffers[name] = convert(buffer)
    return module


def _run_kernel(mode: FakeTensorMode, operation: object, *rest: Any) -> object:  # noqa: ANN401 (torch's)
    """Run an operation without a rule for tensors without data, which on the GPU needs data; name it if that fails."""
    try:
        return run_fallback_kernel(mode, operation, *rest)  # type: ignore[arg-type] # as above
    except RuntimeError as error:
        if not isinstance(error, NotImplementedError) and not re.search(r"NVIDIA driver|CUDA GPU", str(error)):
            raise
        way = "has no rule for tensors without data: capture the model on a machine with the GPU"
        raise NotImplementedError(f"{operation} {way}") from None


def _within(mode: FakeTensorMode) -> Callable[..., Any]:
    """Return a replacement of Dynamo's calls of optimizers, which make their state for real, in a mode."""
    call_method = OptimizerVariable.call_method

    def call_in_mode(*arguments: Any) -> Any:  # noqa: ANN401 (torch's)
        with mode:
            return call_method(*arguments)

    return call_in_mode


@contextlib.contextmanager
def _with_data_on_cpu() -> Iterator[None]:
    """Compute constants on the CPU: `torch.tensor(2.0)` in a trace, and what folds in a graph."""
    with unset_fake_temporarily(), OnCpu():  # type: ignore[no-untyped-call] # as above
        yield
