"""Results of driver calls, and what is set for a function: the calls are made on a driver that notes them."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gemmtune.engine.toolchain.cuda_driver import checked, prefer_shared_memory


class Status(int):
    name = "CUDA_ERROR_INVALID_VALUE"


@pytest.mark.parametrize(("result", "value"), [((0, 7), 7), ((0,), None), ((Status(0), None), None), ((0, 1, 2), 1)])
def test_a_call_that_succeeded_has_its_value(result, value):
    assert checked(result) == value


@pytest.mark.parametrize(
    ("result", "told"), [((Status(1),), "CUDA_ERROR_INVALID_VALUE"), ((2, 7), "2"), ((Status(700), 0), Status.name)]
)
def test_a_call_that_failed_raises_the_drivers_name_of_the_error(result, told):
    with pytest.raises(RuntimeError, match=f"^CUDA driver: {told}$"):
        checked(result)


@pytest.mark.parametrize(
    "failing", ["", "cuDeviceGetAttribute", "cuFuncGetAttribute", "cuFuncSetCacheConfig", "cuFuncSetAttribute"]
)
def test_a_function_may_take_all_shared_memory_that_it_does_not_declare(failing, monkeypatch):
    calls = []

    def call(name, *values):
        def made(*given):
            calls.append((name, *given))
            return (1,) if name == failing else (0, *values)

        return made

    driver: Any = ModuleType("driver")
    driver.CUdevice_attribute = SimpleNamespace(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN="opt-in")
    driver.CUfunction_attribute = SimpleNamespace(
        CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES="static", CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="dynamic"
    )
    driver.CUfunc_cache = SimpleNamespace(CU_FUNC_CACHE_PREFER_SHARED="shared")
    for name, values in (
        ("cuDeviceGetAttribute", (232_448,)),
        ("cuFuncGetAttribute", (1024,)),
        ("cuFuncSetCacheConfig", ()),
        ("cuFuncSetAttribute", ()),
    ):
        setattr(driver, name, call(name, *values))
    bindings: Any = ModuleType("cuda.bindings")
    bindings.driver = driver
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    if failing:
        with pytest.raises(RuntimeError, match="CUDA driver: 1"):
            prefer_shared_memory("function", 3)
        assert calls[-1][0] == failing
        return
    prefer_shared_memory("function", 3)
    assert calls == [
        ("cuDeviceGetAttribute", "opt-in", 3),
        ("cuFuncGetAttribute", "static", "function"),
        ("cuFuncSetCacheConfig", "function", "shared"),
        ("cuFuncSetAttribute", "function", "dynamic", 231_424),
    ]
