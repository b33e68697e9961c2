"""vLLM's plug-in as an export has it: which layers it takes, what runs for an m, and what it reports."""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import replace
from importlib.metadata import distributions
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from gemmtune.engine.api.output_folder import write_all  # noqa: E402 (the packages are there)

sys.path.insert(0, str(Path(__file__).parent))

import vllm_modules as stand_ins  # noqa: E402 (beside this file, it imports torch)
from linear_tables import SCALED, TENSOR_WISE, exported, ranged, row, table  # noqa: E402 (beside this file)

N, K, BASE = 96, 64, "e4m3:nt:epilogue="
TABLE = table(
    row(f"16x96x64:{BASE}{SCALED}", "cute_splitk", "triton_mm"),
    row(f"32x96x64:{BASE}{SCALED}", "aten"),
    row(f"64x96x64:{BASE}{SCALED}:accumulation=exact", "triton_mm"),
    row(f"16x96x64:{BASE}{SCALED}.add(row2)", "triton_mm"),
    row(f"8x160x64:{BASE}{TENSOR_WISE}", "triton_mm"),
    ranges=(ranged(f"256x96x64:{BASE}{SCALED}", 65, 256, "triton_mm"),),
)


@pytest.fixture(scope="module", params=["stand-ins", "wheel"])
def vllm(request):
    """Modules of vLLM, of which those that the plug-in builds on are a wheel's if there is one."""
    found = os.environ.get("GEMMTUNE_VLLM") if request.param == "wheel" else ""
    if found is None:
        pytest.skip("GEMMTUNE_VLLM names no folder with an unpacked wheel of vLLM")
    finder = stand_ins.Modules(Path(found) if found else None)
    sys.meta_path.insert(0, finder)
    linear = importlib.import_module(stand_ins.LINEAR)
    quant_utils = importlib.import_module(f"{stand_ins.QUANT}.utils.quant_utils")
    yield SimpleNamespace(linear=linear, quant_utils=quant_utils, **finder.given["vllm"])
    sys.meta_path.remove(finder)
    for name in [each for each in sys.modules if each.partition(".")[0] == "vllm"]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def plugin(vllm, tmp_path_factory):
    """The exported package, registered, with kernels that compute on the CPU; `called` are their names and m."""
    folder = tmp_path_factory.mktemp("export")
    write_all(exported(TABLE), folder)
    package = folder / "gemmtune_vllm"
    where = importlib.util.spec_from_file_location(
        "gemmtune_vllm", package / "__init__.py", submodule_search_locations=[str(package)]
    )
    module: Any
    sys.modules["gemmtune_vllm"] = module = importlib.util.module_from_spec(where)
    where.loader.exec_module(module)
    module.folder, module.called, module.broken = folder, [], set()
    module.register()
    yield module
    used = sys.modules["vllm.utils.torch_utils"]
    for library in [used.vllm_lib] if hasattr(used, "vllm_lib") else stand_ins.LIBRARIES:
        library._destroy()
    for name in [each for each in sys.modules if each.partition(".")[0] == "gemmtune_vllm"]:
        del sys.modules[name]


@pytest.fixture
def layer_class(vllm, plugin, monkeypatch):
    """The plug-in's class, with a table that nothing has asked yet."""
    plugin._in_use.cache_clear()
    linears, _ = plugin._in_use()
    monkeypatch.setattr(stand_ins, "CUTLASS_CALLS", [])
    plugin.called.clear(), plugin.broken.clear()

    def kernel(name):
        def compute(tensors):
            if name in plugin.broken:
                raise RuntimeError("CUDA driver: CUDA_ERROR_NO_BINARY_FOR_GPU")
            plugin.called.append((name.rpartition("_")[0].removeprefix("gemmtune_"), tensors["a"].shape[0]))
            scales = [tensors[each] for each in ("column", "row", "scalar", "scalar2") if each in tensors]
            bias = tensors.get("row2") if len(scales) == 2 and "column" in tensors else None
            out = (tensors["a"].float() @ tensors["b"].float()) * scales[0] * scales[1]
            tensors["out"].copy_(out if bias is None else out + bias)

        return compute

    linears._kernels = {name: kernel(name) for name in (*linears._table.binaries, *linears._table.cubins)}
    return vllm.linear._POSSIBLE_FP8_KERNELS[stand_ins.Platform.CUDA][0]


def operands(m, n=N, k=K):
    generator = torch.Generator().manual_seed(m)
    a = torch.randn(m, k, generator=generator).to(torch.float8_e4m3fn)
    b = torch.randn(n, k, generator=generator).to(torch.float8_e4m3fn).T
    return a, b, torch.rand(m, 1, generator=generator) + 0.5, torch.rand(n, 1, generator=generator) + 0.5


def applied(kernel, m, bias=None):
    a, b, scale_a, scale_b = operands(m)
    given = {"out_dtype": torch.bfloat16, "As": scale_a, "Bs": scale_b, "bias": bias, "output_shape": [1, m, N]}
    out = kernel.apply_scaled_mm(A=a, B=b, **given)
    right = (a.float() @ b.float()) * scale_a * scale_b.T + (0 if bias is None else bias.float())
    assert out.shape == (1, m, N)
    torch.testing.assert_close(out[0].float(), right, rtol=2**-7, atol=2**-7)
    return calls_until_now()


def calls_until_now():
    """Return kernels with their m, and each m that CUTLASS computed, since the last question."""
    plugin: Any = sys.modules["gemmtune_vllm"]
    called, plugin.called = plugin.called, []
    cutlass, stand_ins.CUTLASS_CALLS[:] = [m for m, _ in stand_ins.CUTLASS_CALLS], []
    return called, cutlass


def made(layer_class, vllm, **changes):
    names = ["weight", "weight_scale", "input_scale", "input_scale_ub"]
    return layer_class(stand_ins.config(vllm, **{"n": N, "k": K, **changes}), names)


def test_vllm_finds_the_entry_point_in_the_exported_folder_which_needs_no_gemmtune(plugin):
    [found] = [each for dist in distributions(path=[str(plugin.folder)]) for each in dist.entry_points]
    assert (found.group, found.name, found.value) == ("vllm.general_plugins", "gemmtune", "gemmtune_vllm:register")
    assert not [file for file in plugin.folder.rglob("*.py") if "gemmtune.engine" in file.read_text(encoding="utf-8")]


def test_its_class_comes_first_once(vllm, plugin, layer_class):
    plugin.register()
    kernels = vllm.linear._POSSIBLE_FP8_KERNELS[stand_ins.Platform.CUDA]
    assert [each.__name__ for each in kernels].count("GemmtuneFP8ScaledMMLinearKernel") == 1
    assert kernels[0] is layer_class


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"weight": (1, -1)}, None),  # vLLM has two names for channels of a weight
        ({"n": 160, "activation": (-1, -1), "weight": (-1, -1)}, None),
        ({"n": 160}, "has no row of 160x64:e4m3:nt:epilogue=mul(column[fp32]).mul(row[fp32])"),
        ({"k": 128}, "has no row of 96x128:"),
        ({"n": 100}, "serves multiples of 16"),
        ({"out_dtype": torch.float16}, "has no row of 96x64:e4m3:nt:out_dtype=fp16:"),
        ({"out_dtype": torch.float32}, "outputs of 16 bits"),
        ({"weight": (-1, -1)}, "scales of tokens with channels or of whole tensors"),
        ({"activation": (1, 128), "weight": (128, 128)}, "scales of tokens with channels or of whole tensors"),
    ],
)
def test_it_takes_layers_of_which_the_table_has_kernels(layer_class, vllm, changes, reason):
    found, why = layer_class.can_implement(stand_ins.config(vllm, **{"n": N, "k": K, **changes}))
    assert found is (reason is None)
    assert reason is None or reason in why
    choose = getattr(vllm.linear, "choose_scaled_mm_linear_kernel", None)
    if choose is not None and found:  # vLLM's own choice among all classes
        layer, kernels = stand_ins.config(vllm, **{"n": N, "k": K, **changes}), vllm.linear._POSSIBLE_FP8_KERNELS
        assert choose(layer, kernels, 90, quantization="fp8_w8a8") is layer_class


def test_another_gpu_and_batch_invariance_leave_all_layers_to_vllm(layer_class, plugin, vllm, monkeypatch):
    assert layer_class.is_supported(90) == (True, None)
    for change, reason in (
        (lambda: monkeypatch.setattr(stand_ins, "GPU", "NVIDIA L4"), "has a table for NVIDIA H200, not for NVIDIA L4"),
        (lambda: monkeypatch.setattr(vllm.envs, "VLLM_BATCH_INVARIANT", True), "VLLM_BATCH_INVARIANT forbids"),
    ):
        change()
        plugin._in_use.cache_clear()
        supported, why = layer_class.is_supported(90)
        assert not supported
        assert reason in why
        assert plugin.report() == {}


def test_a_damaged_table_is_not_used(layer_class, plugin, monkeypatch):
    monkeypatch.setattr(plugin, "_TABLE", "NOTICE")
    plugin._in_use.cache_clear()
    assert layer_class.is_supported(90) == (False, "has no table that can be read")


def test_each_m_runs_its_rows_kernel_or_cutlass_and_is_reported_by_name(layer_class, plugin, vllm):
    kernel = made(layer_class, vllm)
    assert applied(kernel, 16) == ([("cute_splitk", 16)], [])
    assert applied(kernel, 32) == ([], [32])  # the vendor led
    assert applied(kernel, 64) == ([("triton_mm", 64)], [])  # by the exact row: there is no fast one
    assert [applied(kernel, 65) for _ in range(2)] == [([("triton_mm", 65)], [])] * 2
    assert [applied(kernel, m) for m in (257, 48, 48)] == [([], [257]), ([], [48]), ([], [48])]
    assert applied(kernel, 16, torch.randn(N).bfloat16()) == ([("triton_mm", 16)], [])
    name = f"x96x64:{BASE}{SCALED}"
    assert plugin.report() == {
        "row": {f"16{name}": 1, f"16{name}.add(row2)": 1, f"64{name}": 1, f"65{name}": 2},
        "vendor row": {f"32{name}": 1},
        "miss": {f"48{name}": 2, f"257{name}": 1},
    }


def test_operands_that_no_kernel_reads_go_to_cutlass(layer_class, plugin, vllm):
    kernel = made(layer_class, vllm)
    a, b, scale_a, scale_b = operands(16)
    given = {"out_dtype": torch.bfloat16, "bias": None, "output_shape": [16, N]}
    shifted = torch.empty(16 * K + 1, dtype=torch.float8_e4m3fn)[1:].view(16, K)
    of_scales = {"Bs": scale_b.repeat(1, 2)[:, :1]}, {"As": scale_a.repeat(1, 2)[:, :1]}
    of_types = {"A": a.view(torch.float8_e5m2)}, {"B": b.view(torch.float8_e5m2)}
    for changed in ({"A": shifted}, *of_scales, *of_types):
        kernel.apply_scaled_mm(**{"A": a, "B": b, "As": scale_a, "Bs": scale_b, **given, **changed})
    assert calls_until_now() == ([], [16] * 5)
    assert plugin.report() == {"unread operands": {f"16x96x64:{BASE}{SCALED}": 5}}


def test_a_kernel_that_cannot_run_leaves_the_row_to_the_next_and_then_to_cutlass(layer_class, plugin, vllm):
    kernel, linears = made(layer_class, vllm), plugin._in_use()[0]
    plugin.broken.update(name for name in linears._kernels if "cute" in name)
    assert applied(kernel, 16) == ([("triton_mm", 16)], [])
    plugin.broken.update(linears._kernels)
    assert [applied(kernel, 16) for _ in range(2)] == [([], [16])] * 2
    name = f"16x96x64:{BASE}{SCALED}"
    assert plugin.report() == {"row": {name: 1}, "failed: RuntimeError": {name: 2}}


def test_loading_runs_each_row_once_and_counts_nothing(layer_class, plugin, vllm):
    kernel, linears = made(layer_class, vllm), plugin._in_use()[0]
    kernel.process_weights_after_loading(SimpleNamespace(weight=operands(16)[1], weight_scale=None))
    assert plugin.called == []  # on the CPU
    product = plugin.Product(N, K, torch.bfloat16, row_wise=True, bias=False)
    _, b, _, scale = operands(16)
    linears.load(product, b, scale)
    assert plugin.called == [("cute_splitk", 16), ("triton_mm", 64), ("triton_mm", 65)]
    assert plugin.report() == {}


def test_the_operator_is_traced_with_an_open_m(layer_class, plugin, vllm):
    kernel = made(layer_class, vllm)

    def call(a, b, scale_a, scale_b):
        given = {"out_dtype": torch.bfloat16, "bias": None, "output_shape": [a.shape[0], N]}
        return kernel.apply_scaled_mm(A=a, B=b, As=scale_a, Bs=scale_b, **given)

    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

    mode, (a, b, scale_a, scale_b) = FakeTensorMode(shape_env=ShapeEnv()), operands(16)
    rows = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC, DimDynamic.STATIC])
    open_a = mode.from_tensor(a, symbolic_context=rows)
    with mode:
        out = call(open_a, mode.from_tensor(b), mode.from_tensor(scale_a), mode.from_tensor(scale_b))
    assert out.dtype is torch.bfloat16
    assert isinstance(out.shape[0], torch.SymInt)
    assert (plugin.called, plugin.report()) == ([], {})  # tracing runs nothing


def test_the_table_of_another_gpu_stands_beside_it():
    files = exported(TABLE, replace(TABLE, device=replace(TABLE.device, name="NVIDIA H100")))
    assert '"bundle"' in files["vllm_fp8_table.json"]
    assert "gemmtune_vllm/__init__.py" in files
