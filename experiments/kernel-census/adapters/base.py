"""Short form of the classes that docs/own-kernel.md describes, and imports from the folder of the checkouts.

An adapter's arguments are one text in the kernel's words. Its parts, apart by blanks:

    x[M,N+1]:f16   tensor of normal values; types are below, bf16 by default
    >y[M,N]        output, made by make.empty
    ~y[M,N]        output that the kernel works on in place, adds to or writes in part
    i[M]:i32<N     integers from 0 to N - 1; of a type of floating point, values from 0 on that sum up
    +y[M]:i32=e    tensor of an expression of sizes, such as offsets
    x.strides=a,b  strides of x, by the names of their arguments
    N  eps=1e-6    value of a case's size of this name in small letters, or of an expression of sizes
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import types
from contextlib import ExitStack
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar
from unittest.mock import patch

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.tools.tensor_descriptor import TensorDescriptor

ROOT = Path(os.environ.get("KERNEL_CENSUS", ""))
_TYPES = {
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "f32": torch.float32,
    "f64": torch.float64,
    "i1": torch.bool,
    "i8": torch.int8,
    "u8": torch.uint8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
}
_PART = re.compile(r"([>~+]?)(\w+)(?:\[(.*?)\](?::(\w+))?(?:<(\S+))?)?(?:=(\S+))?$")
_KNOWN = {
    "cdiv": triton.cdiv,
    "pow2": triton.next_power_of_2,
    "torch": torch,
    "tl": tl,
    "inf": float("inf"),
    "TensorDescriptor": TensorDescriptor,
}
_H200 = {
    "torch.cuda.get_device_name": "NVIDIA H200",
    "torch.cuda.get_device_capability": (9, 0),
    "torch.cuda.get_device_properties": SimpleNamespace(
        name="NVIDIA H200",
        multi_processor_count=132,
        shared_memory_per_block_optin=232448,
        shared_memory_per_block=49152,
    ),
    "torch.cuda.device_count": 1,
    "torch.cuda.is_available": True,
    "torch.utils._triton.has_triton": True,
    "torch._C._cuda_getCurrentRawStream": 0,
}
"""Answers to what modules ask for on import."""
_DRIVER = SimpleNamespace(
    get_current_target=lambda: GPUTarget("cuda", 90, 32),
    get_current_device=lambda: 0,
    utils=SimpleNamespace(get_device_properties=lambda _: {"max_shared_mem": 232448, "multiprocessor_count": 132}),
)


def imported(repository: str, name: str, bare: tuple[str, ...] = (), gpu: bool = False):
    """Return a module of a checkout, whose packages named in `bare` do not run their `__init__`.

    A package without a folder of its name is the checkout.

    Some modules ask for a GPU on import: `gpu` answers for an H200.
    """
    folder = ROOT / repository
    if not folder.is_dir():
        raise ImportError(f"no checkout {folder}: set KERNEL_CENSUS to the folder of the checkouts")
    sys.path += [each for each in (str(folder), str(ROOT / "packages")) if each not in sys.path]
    for package in bare:
        if package not in sys.modules:
            module = sys.modules[package] = types.ModuleType(package)
            inside = folder / package.replace(".", "/")
            module.__path__ = [str(inside if inside.is_dir() else folder)]
            module.__spec__ = ModuleSpec(package, None, is_package=True)
            module.__version__, module.DEVICE_TYPE = "0", "cuda"
    with ExitStack() as patches:
        for function, value in _H200.items() if gpu else ():
            patches.enter_context(patch(function, lambda *_, value=value: value, create=True))
        patches.enter_context(patch("torch.version.cuda", "13.0"))
        if gpu:
            patches.enter_context(patch.object(triton.runtime.driver, "_active", _DRIVER))
        return importlib.import_module(name)


class Adapter:
    """Class of docs/own-kernel.md whose members are said by texts."""

    text = ""
    blocks = "1"
    """Grid as an expression of sizes and of the config's params."""
    sizes: tuple[dict[str, int], ...] = ()
    """Sizes of each case, by name."""
    small: ClassVar[dict[str, int]] = {}
    """Case that Triton's interpreter takes seconds for; empty for adapters without a reference."""
    where = ""
    """Condition on the sizes and params of configs that are no seeds of the autotuner; empty for none."""

    def __init_subclass__(cls) -> None:
        strides = re.compile(r"(\w+)\.strides=(\S+)")
        parts = [(part, _PART.match(part)) for part in strides.sub("", cls.text).split()]
        if wrong := [part for part, match in parts if match is None]:
            raise ValueError(f"{cls.__name__}: {wrong[0]!r} is no part of a text")
        cls.parts = [match.groups() for _, match in parts]
        cls.strides = dict(strides.findall(cls.text))
        cls.cases = {f"case{number}": case for number, case in enumerate(cls.sizes)}
        cls.outputs = tuple(name for sign, name, *_ in cls.parts if sign and sign in ">~")
        cls.restore = tuple(name for sign, name, *_ in cls.parts if sign == "~")

    def arguments(self, case, make):
        found = {part[1]: _made(case, make, *part) for part in self.parts}
        for tensor, names in self.strides.items():
            found |= dict(zip(names.split(","), found[tensor].stride(), strict=True))
        return found

    def grid(self, case, meta):
        found = _value(self.blocks, {**meta, **case})
        return found if isinstance(found, tuple) else (found,)

    def check(self, case, config):
        own = next((layer.configs for layer in _layers(self.kernel) if hasattr(layer, "configs")), ())
        if not self.where or any(config.items() <= {**each.all_kwargs(), "maxnreg": None}.items() for each in own):
            return None
        return None if _value(self.where, {**config, **case}) else f"not {self.where}"

    def reference(self, case, arguments):
        raise NotImplementedError(f"{type(self).__name__} is for `gemmtune check`, which compares no results")


def _layers(kernel):
    while kernel is not None:
        yield kernel
        kernel = getattr(kernel, "fn", None)


def _made(case, make, sign, name, shape, dtype, below, given):
    if shape is None:
        return case[name.lower()] if given is None else _value(given, case)
    sizes, kind = _value(f"({shape},)" if shape else "()", case), _TYPES[dtype or "bf16"]
    if sign == "+":
        values = torch.as_tensor(_value(given, case), dtype=kind).reshape(sizes)
        return values.to(make.device)
    if sign == ">":
        return make.empty(sizes, kind)
    if below is not None:
        return make.integers(0, _value(below, case), sizes, kind)
    return make.normal(sizes, kind)


def _value(text, case):
    return eval(text, {**_KNOWN, **{name.upper(): value for name, value in case.items()}, **case})
