"""Launches of a cubin through the driver: grid, threads, and the slot of each argument, without a GPU."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from gemmtune.engine.records.gemm.problem import Problem  # noqa: E402 (the packages are there)
from gemmtune.engine.toolchain.launching import cubin as module  # noqa: E402
from gemmtune.engine.toolchain.launching.cubin import CubinKernel  # noqa: E402
from gemmtune.spaces.inductor.kernel import TritonKernel  # noqa: E402


class Driver:
    """Driver that notes launches, with what the pointers point to."""

    def __init__(self):
        self.launches, self.unloaded, self.preferred = [], [], []
        self.count = 0

    def cuModuleLoadData(self, binary):  # noqa: N802 (the driver's name)
        return f"module {binary.decode()}"

    def cuModuleGetFunction(self, loaded, entry):  # noqa: N802
        return f"{loaded}.{entry.decode()}"

    def cuModuleUnload(self, loaded):  # noqa: N802
        self.unloaded.append(loaded)

    def cuLaunchKernel(self, function, *launch):  # noqa: N802
        *sizes, stream, pointers, extra = launch
        table = (ctypes.c_void_p * self.count).from_address(pointers)
        values = [ctypes.c_uint64.from_address(address).value for address in table]
        self.launches.append((function, sizes, stream, values, extra))


@pytest.fixture
def driver(monkeypatch):
    made = Driver()
    monkeypatch.setattr(module, "driver", made)
    monkeypatch.setattr(module, "checked", lambda answer: answer)
    monkeypatch.setattr(module, "prefer_shared_memory", lambda *asked: made.preferred.append(asked))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 70 + device, raising=False)
    return made


def tensor(address):
    return SimpleNamespace(data_ptr=lambda: address)


def test_a_launch_passes_pointers_and_values_in_the_binarys_order(driver):
    driver.count = 5
    kernel = CubinKernel(b"code", "mm", (2, 3, 4), 128, 1024, ["b", "m", "a"], {"m": 9}, ("a", "b", "c"))
    kernel(tensor(11), tensor(22), tensor(33))
    kernel(tensor(44), tensor(55), tensor(66))
    sizes = [2, 3, 4, 128, 1, 1, 1024]
    assert driver.launches == [
        ("module code.mm", sizes, 71, [22, 9, 11, 0, 0], 0),
        ("module code.mm", sizes, 71, [55, 9, 44, 0, 0], 0),
    ]
    kernel.resize((8, 3, 4), {"m": 33})
    kernel(tensor(77), tensor(88), tensor(99))
    assert driver.launches[2] == ("module code.mm", [8, *sizes[1:]], 71, [88, 33, 77, 0, 0], 0)
    kernel.close()
    assert driver.unloaded == ["module code"]


@pytest.mark.parametrize(("shared_bytes", "opts_in"), [(48 * 1024, False), (48 * 1024 + 1, True)])
def test_a_block_opts_into_more_shared_memory_than_it_has_without(driver, shared_bytes, opts_in):
    CubinKernel(b"code", "mm", (1, 1, 1), 32, shared_bytes, ["a"], {}, ("a",))
    assert driver.preferred == ([("module code.mm", 1)] if opts_in else [])


def test_an_unknown_argument_is_named_with_the_known_ones(driver):
    with pytest.raises(RuntimeError) as refused:
        CubinKernel(b"code", "mm", (1, 1, 1), 32, 0, ["a", "z", "y"], {"m": 1}, ("a", "b"))
    assert str(refused.value) == "the binary takes y; known: m, a, b"


@pytest.mark.parametrize(
    ("m", "block_m", "grid_x"), [(16, None, 5), (16, 16, 5), (17, 16, 10), (1, 16, 5), (32, 16, 10)]
)
def test_a_templates_grid_has_the_blocks_of_m_where_the_artifact_names_them(driver, tmp_path, m, block_m, grid_x):
    path = tmp_path / "kernel.cubin"
    path.write_bytes(b"code")
    launch = {"entry": "mm", "grid_x": 5, "grid_y": 6, "grid_z": 7, "threads": 64, "shared_bytes": 10}
    launch |= {"arguments": "a b m out"} | ({} if block_m is None else {"block_m": block_m})
    problem = Problem(m, 64, 128)
    driver.count = 6
    kernel = TritonKernel(SimpleNamespace(path=str(path), launch=tuple(launch.items())), problem)
    names = problem.argument_names
    kernel(*(tensor(100 + place) for place in range(len(names))))
    places = {name: 100 + place for place, name in enumerate(names)}
    (found,) = driver.launches
    assert found[1] == [grid_x, 6, 7, 64, 1, 1, 10]
    assert found[3] == [places["a"], places["b"], m, places[names[-1]], 0, 0]
    kernel.close()
