"""Kernels that Inductor generates without a GPU when the exported loader chooses: with epilogues, and large ones."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from unittest.mock import patch

import pytest

from gemmtune.engine.api.output_folder import write_all
from gemmtune.engine.consumers.inductor.exporter import InductorExporter, product_key
from gemmtune.engine.consumers.inductor.loader.generated import source_key
from gemmtune.engine.consumers.inductor.written import parse_written_table
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, GeneratedRow, Row
from gemmtune.engine.tables.sealed import seal_of
from gemmtune.engine.testing.exporter_conformance import example_table

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

from torch._inductor import config  # noqa: E402
from torch._inductor.codecache import PyCodeCache  # noqa: E402
from torch._inductor.codegen.triton import TritonKernel, TritonScheduling  # noqa: E402
from torch._inductor.debug import DebugContext  # noqa: E402
from torch._inductor.decomposition import select_decomp_table  # noqa: E402
from torch._inductor.graph import GraphLowering  # noqa: E402
from torch._inductor.virtualized import V  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.fx.experimental.symbolic_shapes import ShapeEnv  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from gemmtune.engine.consumers.inductor.loader.hooks.generated_rows import key_of  # noqa: E402
from gemmtune.spaces.inductor.target import environment, target  # noqa: E402

pytestmark = pytest.mark.slow(12)

H200 = catalogue.device("H200")
ROOMY = {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 128, "GROUP_M": 4, "num_stages": 3, "num_warps": 8}
FULL = {**ROOMY, "BLOCK_M": 128, "BLOCK_N": 128, "num_warps": 4}
PRODUCT = "64x96x256:bf16:nt"
WHOLE = "64x96x256:int8:nt:out_dtype=bf16"
SCALED = "64x96x256:e4m3:nt:epilogue=mul(column[fp32]).mul(row[fp32])"
SPLIT_K = {"warp_n": 16, "warps_n": 1, "warps_k": 4, "split_k": 1, "k_unroll": 1, "num_stages": 4, "share_a": False}
QUACK = {"tile_m": 128, "tile_n": 128, "cluster_m": 1, "cluster_n": 2, "pingpong": True, "swap_ab": False}
QUACK |= {"is_dynamic_persistent": False, "max_swizzle_size": 8}
SHAPES = {"x": (64, 256), "w": (96, 256), "v": (96, 256), "r": (64, 96), "s": (96,), "large": (32768, 2048)}
SHAPES |= {"gates": (4, 6 * 96), "column": (64, 1), "scales": (1, 96)}
SHAPES |= {"x3": (4, 64, 256), "w3": (4, 256, 96), "row3": (4, 1, 96)}
TYPES = {"x8": torch.float8_e4m3fn, "w8": torch.float8_e4m3fn, "column": torch.float32, "scales": torch.float32}
TYPES |= {"xi": torch.int8, "wi": torch.int8, "tokens": torch.float32}
SHAPES |= {"x8": SHAPES["x"], "w8": SHAPES["w"], "xi": SHAPES["x"], "wi": SHAPES["w"], "tokens": (16, 4, 1)}
SOURCES: list[str] = []
"""Sources of the kernels that were generated last."""
BLOCKS = {"XBLOCK": 2, "R0_BLOCK": 1024, "num_warps": 8, "num_stages": 1}


def row(problem, space, params):
    choice = Choice(space, Config(params), 100.0, 99.0, 101.0, 32, Evidence.MEASURED, "torch 2.13.0", "events-cold-l2")
    return Row(Problem.parse(problem), (choice,), None, 0.0, ())


@pytest.fixture
def kernels(tmp_path, unbuilt, load):
    """Return a function that lowers another one with a table's rows.

    It returns the kinds of the generated kernels, the report, and the code that calls them.
    """

    def lower(function, *rows, tuning=True, **fields):
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        with installed(rows, tmp_path, load, **fields) as loader:
            with FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True) as mode:
                types = [TYPES.get(name, torch.bfloat16) for name in names]
                inputs = [torch.empty(SHAPES[n], dtype=t, device="cuda:0") for n, t in zip(names, types, strict=True)]
                module = make_fx(function, decomposition_table=select_decomp_table())(*inputs)
            binaries = sys.modules.get("exported_loader.binaries", loader)
            with patch.object(binaries, "link", lambda *_: "", create=True):  # there is no driver here
                kinds, code = generated(module, inputs, mode, tmp_path, loader.options() if tuning else {})
            return kinds, str(loader.report()), code

    return lower


@contextmanager
def installed(rows, folder, load, **fields):
    """Install the exported loader with a table of some rows, and give it."""
    write_all(InductorExporter().export(replace(example_table(), rows=rows, ranges=(), **fields)), folder)
    loader = load(folder, "exported_loader")
    loader.install(policy="ignore")
    try:
        yield loader
    finally:
        loader.uninstall()


def generated(module, inputs, mode, folder, settings):
    found = []

    def define(_, source, _nodes, _kernel):
        SOURCES.append(source)
        kind = "template" if "triton_heuristics.template" in source else "pointwise"
        kind = "fixed" if "triton_heuristics.fixed_config" in source else kind
        found.append("descending" if "'coordinate_descent_tuning': True" in source else kind)
        return f"kernel{len(found)}"

    with ExitStack() as stack:
        stack.enter_context(environment(str(folder)))
        stack.enter_context(target(H200))
        stack.enter_context(config.patch(settings))
        stack.enter_context(patch.object(TritonScheduling, "define_kernel", define))
        stack.enter_context(patch("torch.cuda.is_available", lambda: True))
        stack.enter_context(V.set_debug_handler(DebugContext()))
        stack.enter_context(V.set_fake_mode(mode))
        graph = GraphLowering(module, example_inputs=inputs, shape_env=mode.shape_env)
        stack.enter_context(V.set_graph_handler(graph))
        graph.run(*inputs)
        code, _ = graph.codegen()
        return found, getattr(code, "value", code)


def silu_mul(x, w, r):
    return F.silu(x @ w.t()) * r


def relu(x, w):
    return torch.relu(x @ w.t())


def saved(x, w):
    y = x @ w.t()
    return F.gelu(y), y


def two_products(x, w, v):
    return F.silu(x @ w.t()) * (x @ v.t())


def normed(x, w, r):
    y = x @ w.t() + r
    return y * torch.rsqrt((y.float() ** 2).mean(-1, keepdim=True)), y


def unknown(x, w):
    return torch.atan(x @ w.t())


def before(x, w):
    return torch.relu(x) @ w.t()


def gated(x, w, r, gates):
    return r.view(4, 16, 96) + gates.narrow(1, 96, 96).unsqueeze(1) * (x @ w.t()).view(4, 16, 96)


def gate_of_roots(x, w, r, gates):
    return r.view(4, 16, 96) + gates.narrow(1, 96, 96).unsqueeze(1) * torch.sqrt(x @ w.t()).view(4, 16, 96)


def biased(x3, w3, row3):
    return torch.sin(torch.bmm(x3, w3) + row3)


def of_tokens(xi, wi, tokens, scales):
    """Scale the rows of sequences as torchao does."""
    found = torch._int_mm(xi, wi.t()) * (tokens / 127).reshape(-1, 1)
    return (found.view(16, 4, 96) * scales).bfloat16()


PLAIN, FULL_PLAIN = row(PRODUCT, "triton_mm", ROOMY), row(PRODUCT, "triton_mm", FULL)
SILU_MUL = row(f"{PRODUCT}:epilogue=silu.mul(matrix)", "triton_mm", FULL)
OTHER = row("16x96x256:bf16:nt:epilogue=relu", "triton_mm", FULL)  # for which the loader reads epilogues


@pytest.mark.parametrize(
    ("function", "rows", "found"),
    [
        (silu_mul, (SILU_MUL,), ["template"]),
        (silu_mul, (PLAIN,), ["template", "pointwise"]),  # silu is not cheap
        (silu_mul, (PLAIN, row(f"{PRODUCT}:epilogue=silu.mul(matrix)", "aten", {})), ["pointwise"]),
        (silu_mul, (row(PRODUCT, "aten", {}),), ["pointwise"]),
        (relu, (PLAIN,), ["template"]),
        (relu, (FULL_PLAIN,), ["template", "pointwise"]),  # the row has no room
        (saved, (row(f"{PRODUCT}:epilogue=gelu+x", "triton_mm", FULL),), ["template"]),
        (two_products, (PLAIN,), ["template", "template", "pointwise"]),
        (two_products, (PLAIN, row(f"{PRODUCT}:epilogue=mul(matrix.silu)", "triton_mm", FULL)), ["template"] * 2),
        (gated, (PLAIN,), ["template"]),
        (gate_of_roots, (PLAIN,), ["template", "pointwise"]),
        (gate_of_roots, (row(f"{PRODUCT}:epilogue=sqrt.mul(gate[16]).add(matrix)", "triton_mm", FULL),), ["template"]),
        (
            gate_of_roots,
            (PLAIN, row(f"{PRODUCT}:epilogue=sqrt.mul(gate[8]).add(matrix)", "triton_mm", FULL)),
            ["template", "pointwise"],
        ),
        (biased, (row("4x64x96x256:bf16:nn:bmm:epilogue=add(rows).sin", "triton_mm", FULL),), ["template"]),
        (
            of_tokens,
            (row(f"{WHOLE}:epilogue=mul(column[fp32].div(127)).mul(row[fp32])", "triton_mm", FULL),),
            ["template"],
        ),
        (normed, (PLAIN, SILU_MUL), ["template", "pointwise"]),
        (unknown, (PLAIN,), ["template", "pointwise"]),
        (before, (PLAIN,), ["pointwise", "template"]),
    ],
)
def test_a_rows_kernel_computes_what_it_was_timed_with_or_what_is_cheap(kernels, function, rows, found):
    if function in (gated, gate_of_roots, of_tokens) and torch.__version__.startswith("2.11."):
        pytest.skip("torch 2.11 fuses no gate, and no column that a reshape makes")
    assert kernels(function, *rows)[0] == found


def of_column(x, w, c):
    return x @ w.t() * c


@pytest.mark.parametrize(
    ("function", "rows", "found"),
    [
        (silu_mul, (SILU_MUL,), ["template"]),
        (silu_mul, (PLAIN, SILU_MUL), ["template"]),
        (relu, (PLAIN,), ["template"]),
        (of_column, (PLAIN,), ["template", "pointwise"]),
    ],
)
def test_a_batch_invariant_row_fuses_at_one_row_what_it_fuses_at_others(kernels, monkeypatch, function, rows, found):
    for m in (64, 16, 1):
        monkeypatch.setattr(sys.modules[__name__], "SHAPES", SHAPES | {"x": (m, 256), "r": (m, 96), "c": (m, 1)})
        assert kernels(function, *rows, batch_invariant=True)[0] == found, m


def test_the_report_names_the_epilogue_and_says_where_it_runs(kernels):
    _, fused, _ = kernels(silu_mul, SILU_MUL)
    assert f"{PRODUCT}:epilogue=silu.mul(matrix): row" in fused
    assert "epilogue apart" not in fused
    _, apart, _ = kernels(silu_mul, PLAIN)
    assert "epilogue apart" in apart
    with pytest.warns(UserWarning, match="no row for any product"):
        _, missed, _ = kernels(silu_mul, OTHER)
    assert f"--problem '{PRODUCT}:epilogue=silu.mul(matrix)'" in missed
    _, unreadable, _ = kernels(unknown, PLAIN)
    assert "epilogue apart: atan, no known name" in unreadable


def test_a_loader_of_plain_rows_takes_each_product_for_a_plain_one(kernels):
    kinds, found, _ = kernels(silu_mul, FULL_PLAIN)
    assert (kinds, f"{PRODUCT}: row" in found, "epilogue" in found) == (["template", "pointwise"], True, False)
    with pytest.warns(UserWarning, match="no row for any product"):
        _, missed, _ = kernels(silu_mul)
    assert missed.endswith(f"--problem {PRODUCT}")


def behind(x, w, r):
    y = x @ w.t()
    return torch.relu(y + (r.float() * 2).bfloat16().cumsum(0))


def viewed(x, w, r, s):
    y = torch.addmm(s, x, w.t()).view(8, 8, 96)
    return (F.gelu(y) * r.view(8, 8, 96) * s).float(), r


def scaled(x8, w8, column, scales):
    return torch._scaled_mm(x8, w8.t(), column, scales, out_dtype=torch.bfloat16, use_fast_accum=True)


def scaled_silu_mul(x8, w8, column, scales, r):
    return F.silu(scaled(x8, w8, column, scales)) * r


def cute_row(problem, space="cute_splitk", params=SPLIT_K | {"use_pdl": False}):
    other = Choice("aten", Config({}), 120.0, 119.0, 121.0, 32, Evidence.MEASURED, "torch 2.13.0", "events-cold-l2")
    return replace(row(problem, space, params), baseline=other)


def calls(code):
    """Return the names of the kernels that are called in their place, with the number of their inputs."""
    found = re.findall(r"extern_kernels\.(\w+)\((.*), out=", code)
    return [
        (
            name.rsplit("_", 1)[0] if "gemmtune" in name else name,
            len(re.findall(r"\b(?:buf\d+|(?:[xwvrs]8?|column|scales)_1)\b", inputs)),
        )
        for name, inputs in found
    ]


@pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed")
class TestABinaryWithAnEpilogue:
    def test_takes_the_place_of_the_product_and_the_kernels_behind_it(self, kernels):
        kinds, report, code = kernels(silu_mul, cute_row(f"{PRODUCT}:epilogue=silu.mul(matrix)"))
        assert (kinds, calls(code)) == ([], [("gemmtune_cute_splitk", 3)])
        assert "cute::cute_splitk" in report
        assert "apart" not in report

    def test_reads_views_and_vectors_and_stores_another_type(self, kernels):
        problem = f"{PRODUCT}:addmm:epilogue=gelu.mul(matrix).mul(row).to(fp32)"
        kinds, report, code = kernels(viewed, cute_row(problem))
        assert (kinds, calls(code)) == ([], [("gemmtune_cute_splitk", 5)]), report
        assert "torch.float32" in code

    def test_stores_several_outputs_in_one_buffer_the_product_among_them(self, kernels):
        problem = f"{PRODUCT}:epilogue=gelu+x"
        kinds, report, code = kernels(saved, cute_row(problem, "quack_gemm", QUACK))
        assert (kinds, calls(code)) == ([], [("gemmtune_quack_gemm", 2)]), report
        assert re.search(r"\(2, 64, 96\), \(6144, 96, 1\), torch.bfloat16", code)
        gelu, product = re.search(r"return \((.*), \)", code)[1].split("reinterpret_tensor(")[1:]
        assert "0)" in gelu
        assert "6144)" in product  # behind it

    def test_of_a_plain_product_leaves_the_epilogue_to_inductor(self, kernels):
        kinds, report, code = kernels(silu_mul, cute_row(PRODUCT), OTHER)
        assert (kinds, calls(code)) == (["pointwise"], [("gemmtune_cute_splitk", 2)])
        assert "epilogue apart" in report

    def test_leaves_a_product_to_the_next_choice_whose_operand_is_computed_later(self, kernels):
        with pytest.warns(UserWarning, match="matrix is computed behind the product"):
            _, report, code = kernels(behind, cute_row(f"{PRODUCT}:epilogue=add(matrix).relu"))
        assert ("mm", 2) in calls(code)
        assert "next choice" in report

    def test_reads_a_product_that_all_else_has_read(self, kernels):
        rows = row(PRODUCT, "aten", {}), cute_row(f"{PRODUCT}:epilogue=mul(matrix.silu)", "quack_gemm", QUACK)
        kinds, report, code = kernels(two_products, *rows)
        assert (kinds, calls(code)) == ([], [("mm", 2), ("gemmtune_quack_gemm", 3)]), report

    def test_takes_the_scales_of_8_bit_floats(self, kernels):
        kinds, report, code = kernels(scaled, cute_row(SCALED))
        assert (kinds, calls(code)) == ([], [("gemmtune_cute_splitk", 4)]), report
        assert "cute::cute_splitk" in report

    def test_takes_the_scales_of_8_bit_floats_and_what_is_behind_them(self, kernels):
        kinds, report, code = kernels(scaled_silu_mul, cute_row(f"{SCALED}.silu.mul(matrix)"))
        assert (kinds, calls(code)) == ([], [("gemmtune_cute_splitk", 5)]), report

    def test_of_a_scaled_product_leaves_what_is_behind_to_inductor(self, kernels):
        kinds, report, code = kernels(scaled_silu_mul, cute_row(SCALED))
        assert (kinds, calls(code)) == (["pointwise"], [("gemmtune_cute_splitk", 4)]), report

    def test_of_a_scaled_product_serves_none_with_another_scale(self, kernels):
        with pytest.warns(UserWarning, match="no row for any product"):
            _, _, code = kernels(scaled, cute_row(SCALED.replace("mul(column", "mul(scalar").replace("row", "scalar2")))
        assert calls(code) == [("_scaled_mm", 4)]

    def test_is_only_for_rows_of_its_epilogue(self, unbuilt):
        table = replace(example_table(), rows=(cute_row(f"{PRODUCT}:epilogue=relu"),), ranges=())
        text = InductorExporter().export(table)["inductor_table.json"]
        content = json.loads(text)
        (kernel,), (rows,) = content["kernels"].values(), content["rows"].values()
        assert kernel["epilogue"] == [[["relu", "x"], ""]]
        bare = json.dumps({**content, "rows": {product_key(Problem.parse(PRODUCT)): rows}, "sha256": ""}).encode()
        resealed = bare.replace(b'"sha256": ""', f'"sha256": "{seal_of(bare, "")}"'.encode())
        with pytest.raises(ValueError, match="computes the epilogue 'relu', not none"):
            parse_written_table(resealed)


def softmaxes(large, x):
    return torch.softmax(large, -1), torch.softmax(x, -1)


def test_large_kernels_alone_descend_and_only_with_the_options_of_a_table(kernels, monkeypatch):
    kinds, _, _ = kernels(softmaxes, PLAIN)
    assert kinds == ["descending", "pointwise"]
    kinds, _, _ = kernels(softmaxes, PLAIN, tuning=False)
    assert kinds == ["pointwise", "pointwise"]
    monkeypatch.setitem(SHAPES, "large", (8192, 2048))  # 64 MiB in and out, close to the L2's size
    kinds, _, _ = kernels(softmaxes, PLAIN)
    assert kinds == ["pointwise", "pointwise"]


def loaded(source):
    """Return a generated kernel as a process that compiles it finds it."""
    source = source.replace("triton_helpers.set_driver_to_gpu()", "")
    with target(H200):
        return PyCodeCache.load(source.replace("Placeholder.KERNEL_NAME", "triton_fused_kernel")).triton_fused_kernel


def test_a_row_fixes_the_config_of_its_kernel_alone(kernels):
    SOURCES.clear()
    assert kernels(softmaxes, PLAIN)[0] == ["descending", "pointwise"]
    large = key_of(SOURCES[0])
    kernel = loaded(SOURCES[0])
    assert large == source_key(str(kernel.size_hints), str(kernel.triton_meta["signature"]), kernel.fn.src)
    assert large != key_of(SOURCES[1])
    rows = (GeneratedRow(large, "triton_red_fused__softmax_0", replace(PLAIN.choices[0], config=Config(BLOCKS)), 9.0),)
    before, _ = SOURCES
    SOURCES.clear()
    assert kernels(softmaxes, PLAIN, generated=rows)[0] == ["fixed", "pointwise"]
    fixed = loaded(SOURCES[0])
    assert [(each.kwargs, each.num_warps) for each in fixed.configs] == [({"XBLOCK": 2, "R0_BLOCK": 1024}, 8)]
    assert fixed.fn.src == kernel.fn.src
    assert SOURCES[0].rpartition("@triton.jit")[2] == before.rpartition("@triton.jit")[2]


def test_inductor_generates_as_before_once_the_table_is_gone(tmp_path, load):
    own = TritonKernel.codegen_kernel
    with installed((PLAIN,), tmp_path, load):
        assert TritonKernel.codegen_kernel is not own
    assert TritonKernel.codegen_kernel is own
