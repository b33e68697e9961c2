"""vLLM for tests of the plug-in: the real modules of a wheel that it builds on, or stand-ins with their contract.

With a folder, the modules of `REAL` are those of an unpacked wheel, whatever they import of the rest of vLLM. On a CPU
there is no CUTLASS, so `cutlass_scaled_mm` computes with torch.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections import defaultdict
from collections.abc import Sequence
from enum import Enum
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import MagicMock

import torch

LINEAR = "vllm.model_executor.kernels.linear"
QUANT = "vllm.model_executor.layers.quantization"
REAL = (
    LINEAR,
    f"{LINEAR}.base",
    f"{LINEAR}.scaled_mm",
    f"{LINEAR}.scaled_mm.ScaledMMLinearKernel",
    f"{LINEAR}.scaled_mm.BlockScaledMMLinearKernel",
    f"{LINEAR}.scaled_mm.cutlass",
    f"{QUANT}.utils.quant_utils",
    "vllm.utils.torch_utils",
)
GPU = "NVIDIA H200"


class Platform(Enum):
    CUDA = 1
    ROCM = 2
    CPU = 3
    XPU = 4


class Shape(NamedTuple):
    row: int
    col: int

    def is_per_tensor(self):
        return self == (-1, -1)

    def is_per_token(self):
        return self == (1, -1)

    def is_per_channel(self):
        return self == (-1, 1)

    def is_per_group(self):
        return self.row == 1 and self.col >= 1


class Cutlass:
    """Contract of vLLM's CutlassFP8ScaledMMLinearKernel that the plug-in relies on."""

    def __init__(self, c, layer_param_names: Sequence[str]):
        assert self.can_implement(c)[0]
        assert self.is_supported()[0]
        self.config, self.layer_param_names = c, layer_param_names

    @classmethod
    def is_supported(cls, compute_capability=None):
        return True, None

    @classmethod
    def can_implement(cls, c):
        return True, None

    def process_weights_after_loading(self, layer):
        self.processed = layer

    def _get_layer_params(self, layer):
        return tuple(getattr(layer, name, None) for name in self.layer_param_names)


def register_op(name, function, fake_impl):
    library = torch.library.Library("vllm", "FRAGMENT")
    library.define(name + torch.library.infer_schema(function, mutates_args=[]))
    library.impl(name, function, "CPU")
    library._register_fake(name, fake_impl)
    LIBRARIES.append(library)


def cutlass_scaled_mm(a, b, scale_a, scale_b, out_dtype, bias=None):
    CUTLASS_CALLS.append(tuple(a.shape))
    out = (a.float() @ b.float()) * scale_a.reshape(-1, 1) * scale_b.reshape(1, -1)
    return (out if bias is None else out + bias).to(out_dtype)


LIBRARIES: list[Any] = []
CUTLASS_CALLS: list[tuple[int, ...]] = []


class Unknown(ModuleType):
    """Module that has whatever is asked for: a class under a name that begins with a capital, else a stand-in."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        members = {"__init__": lambda *_, **__: None}
        value = type(name, (), members) if name[0].isupper() else MagicMock(name=name)
        setattr(self, name, value)
        return value


class Modules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finder of `vllm` and its modules."""

    def __init__(self, wheel: Path | None):
        self.wheel = wheel
        platform = MagicMock(name="current_platform", _enum=Platform.CUDA, dispatch_key="CPU")
        platform.get_device_name.side_effect = lambda *_: GPU
        platform.get_device_capability.return_value = (9, 0)
        platform.fp8_dtype.return_value = torch.float8_e4m3fn
        settings = defaultdict(bool, VLLM_DISABLED_KERNELS=[])
        disabled = type("envs", (), {"__getattr__": lambda _, name: settings[name]})()
        kernels = {each: [] for each in Platform}
        self.given: dict[str, dict[str, Any]] = {
            "vllm": {"envs": disabled},
            "vllm.platforms": {"current_platform": platform, "PlatformEnum": Platform},
            "vllm._custom_ops": {
                "cutlass_scaled_mm": cutlass_scaled_mm,
                "cutlass_scaled_mm_supports_fp8": lambda _: True,
            },
            f"{QUANT}.utils.w8a8_utils": {"cutlass_fp8_supported": lambda: True, "CUTLASS_BLOCK_FP8_SUPPORTED": True},
            f"{QUANT}.utils.humming": {"prioritize_humming": lambda kernels, _=None: kernels},
            "vllm.config": {"get_current_vllm_config_or_none": lambda: None},
        }
        if wheel is None:
            self.given |= {
                LINEAR: {"_POSSIBLE_FP8_KERNELS": kernels, "_LINEAR_BACKEND_KERNEL_MAP": {}},
                f"{LINEAR}.scaled_mm.cutlass": {"CutlassFP8ScaledMMLinearKernel": Cutlass},
                f"{QUANT}.utils.quant_utils": {"GroupShape": Shape},
                "vllm.utils.torch_utils": {"direct_register_custom_op": register_op},
            }

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] != "vllm":
            return None
        if self.wheel is not None and name in REAL:
            place = self.wheel.joinpath(*name.split("."))
            folder = place if place.is_dir() else None
            file = place / "__init__.py" if folder else place.with_suffix(".py")
            return importlib.util.spec_from_file_location(
                name, file, submodule_search_locations=[str(folder)] if folder else None
            )
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module: Any = ModuleType(spec.name) if spec.name in self.given else Unknown(spec.name)
        for name, value in self.given.get(spec.name, {}).items():
            setattr(module, name, value)
        if spec.name == "vllm":
            sys.modules["vllm.envs"] = module.envs
        return module

    def exec_module(self, module):
        module.__path__ = []


def config(modules, n, k, activation=(1, -1), weight=(-1, 1), out_dtype=torch.bfloat16):
    """Return the description of a layer, as vLLM hands it to `can_implement`."""
    shape = modules.quant_utils.GroupShape

    def key(rows, columns, static):
        return SimpleNamespace(
            dtype=torch.float8_e4m3fn, scale=SimpleNamespace(group_shape=shape(rows, columns), static=static)
        )

    keys = {"activation_quant_key": key(*activation, static=False), "weight_quant_key": key(*weight, static=True)}
    return SimpleNamespace(**keys, weight_shape=(n, k), input_dtype=out_dtype, out_dtype=out_dtype)
