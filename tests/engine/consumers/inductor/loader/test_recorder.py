"""Recorder of lowered products: numbers, texts and lines that it writes, without compiling."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import sympy  # noqa: E402 (torch brings it)
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.fx import Graph, GraphModule  # noqa: E402
from torch.utils._sympy.value_ranges import ValueRanges  # noqa: E402

from gemmtune.engine.consumers.inductor.epilogues.reader import PLAIN  # noqa: E402
from gemmtune.engine.consumers.inductor.loader import recorder  # noqa: E402
from gemmtune.engine.consumers.inductor.loader.lowered import AtenChoices, LoweredProduct  # noqa: E402

S, T = sympy.symbols("s t", integer=True, positive=True)
KEY = "mm:bfloat16:nt:1x64x128:none:static"


class Lowering(SimpleNamespace):
    """Stand-in for Inductor's graph."""

    __hash__ = object.__hash__


def lowered(m, hint=16, key=KEY):
    return LoweredProduct(m, hint, key, 128, PLAIN)


def module(*targets, value=None):
    graph = Graph()
    read = graph.placeholder("x")
    read.meta["val"] = value
    for target in targets:
        graph.call_function(target, (read, read)).meta["val"] = value
    return GraphModule(torch.nn.Module(), graph)


def between(monkeypatch, least, most):
    shapes = SimpleNamespace(bound_sympy=lambda m: ValueRanges(least, most))
    graph = Lowering(sizevars=SimpleNamespace(shape_env=shapes), current_node="node", parent=None)
    monkeypatch.setattr(recorder, "V", SimpleNamespace(graph=graph))


@pytest.mark.parametrize(
    ("m", "divisor"),
    [(128 * S, 128), (S, 1), (S + 1, 1), (8 * S * T, 8), (16, 1), (sympy.Integer(16), 1), (S / 2, 1), (-4 * S, 1)],
)
def test_the_divisor_of_m_is_its_whole_factor(m, divisor):
    assert recorder.divisor(m) == divisor


@pytest.mark.parametrize(
    ("m", "least", "most", "span"),
    [
        (16, 2, 99, (16, 16)),
        (S, 2, 99, (2, 99)),
        (S, 0, 99, (1, 99)),
        (S, 2, 2**62, (2, 2**62)),
        (S, 2, 2**62 + 1, (2, None)),
    ],
)
def test_a_graph_serves_the_sizes_that_torch_left_open(monkeypatch, m, least, most, span):
    between(monkeypatch, least, most)
    assert recorder.span_of(lowered(m)) == span


def test_runs_are_told_ever_more_rarely():
    told = []
    count = recorder._Runs(told.append)
    for _ in range(40):
        count()
    assert told == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 18, 22, 27, 33]


aten = torch.ops.aten


def user_kernel(x, y):
    raise NotImplementedError


def grouped_mm_fallback(x, y):
    raise NotImplementedError


@pytest.mark.parametrize(
    ("target", "dtype", "reason"),
    [
        (aten.mm.default, torch.bfloat16, ""),
        (aten.mm.default, torch.complex64, "tables have no rows of complex64"),
        (aten.relu.default, torch.complex64, ""),
        (
            aten._grouped_mm.default,
            torch.bfloat16,
            "a library's kernel; gemmtune capture lists the model's grouped products, to tune them",
        ),
        (aten.convolution.default, torch.bfloat16, "a library's kernel"),
        (
            torch.ops.higher_order.flex_attention,
            torch.bfloat16,
            "a library's kernel; gemmtune capture lists the model's attention, to tune it",
        ),
        (aten.add.Tensor, torch.bfloat16, ""),
        (user_kernel, torch.bfloat16, ""),
        (
            aten._transformer_encoder_layer_fwd.default,
            torch.bfloat16,
            "a library's kernel for all products; torch.backends.mha.set_fastpath_enabled(False) gives them rows",
        ),
        (
            grouped_mm_fallback,
            torch.float16,
            "a library's kernel; in bfloat16, transformers calls torch's grouped product, which rows serve",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:Torchinductor does not support:UserWarning")  # of complex numbers, once
def test_calls_of_libraries_are_counted_with_the_reason_that_no_row_serves_them(target, dtype, reason):
    with FakeTensorMode():
        value = torch.empty(2, 2, dtype=dtype, device="cuda:0")
    found = recorder.library_calls(module(target, target, value=value))
    assert found == (Counter({(str(target), reason): 2}) if reason else Counter())


def test_a_call_without_a_value_is_no_product_of_complex_numbers():
    assert not recorder.library_calls(module(aten.mm.default))


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Return a file of products, and a function that reads its lines after the first."""
    between(monkeypatch, 128, 2**63)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    path = tmp_path / "products.jsonl"
    file = recorder.ProductFile(path)
    yield file, lambda: [json.loads(line) for line in path.read_text().splitlines()]
    file.close()


def test_the_file_has_a_line_per_product_and_call_with_the_number_of_its_graph(written):
    file, lines = written
    one, other = Lowering(module=module(aten.convolution.default)), Lowering()
    file.add(lowered(128 * S, 256), None, one)
    file.add("mm: n: is dynamic", None, one)
    file.add(lowered(16), None, other)
    start, *found = lines()
    assert start == {"type": "start", "process": file.uuid, "torch": torch.__version__, "device": None}
    assert [line.pop("process") for line in found] == [file.uuid] * 4
    problem = {"type": "product", "epilogue": ""}
    assert found == [
        {
            "type": "unseen",
            "graph": 1,
            "operation": "aten.convolution.default",
            "reason": "a library's kernel",
            "count": 1,
        },
        {**problem, "graph": 1, "problem": "256x64x128:bf16:nt", "m": "128*s", "first": 128, "last": None, "step": 128},
        {"type": "unseen", "graph": 1, "operation": "mm", "reason": "n: is dynamic", "count": 1},
        {**problem, "graph": 2, "problem": "16x64x128:bf16:nt", "m": "16", "first": 16, "last": 16, "step": 1},
    ]
    file.close()
    file.close()
    file.add(lowered(16), None, Lowering())
    assert len(lines()) == 5  # nothing more after the end


def test_runs_of_a_graphs_code_are_counted_and_its_module_stays_as_it_is(written):
    file, lines = written
    code = SimpleNamespace(call=lambda *values: sum(values), name="generated")
    graph = Lowering(compile_to_module=lambda: code)
    file.add("mm: why", None, graph)
    compiled = graph.compile_to_module()
    assert "compile_to_module" not in vars(graph)
    assert (compiled.call(1, 2), compiled.call(3), compiled.name) == (3, 3, "generated")
    assert [(line["graph"], line["runs"]) for line in lines() if line["type"] == "runs"] == [(1, 1), (1, 2)]
    code.call(5)  # of a graph of equal code, which nobody records
    assert len(lines()) == 4


def test_graphs_with_calls_of_libraries_are_seen_before_they_are_lowered(written):
    file, lines = written
    run = lambda graph, *inputs, **named: (inputs, named)  # noqa: E731 (stands for Inductor's)
    lower = partial(file.choices().run_graph, run)
    calls = module(aten._grouped_mm.default)
    assert lower(Lowering(parent=None, module=calls), 1, two=2) == ((1,), {"two": 2})
    lower(Lowering(parent=None, module=module(aten.add.Tensor)))
    lower(Lowering(parent=Lowering(), module=calls))
    assert [(line["type"], line.get("graph")) for line in lines()] == [("start", None), ("unseen", 1)]


class Asked:
    """Stand-in for what Inductor asks with."""

    def __init__(self, device, product=""):
        self.device = lambda: torch.device(device)
        self.product = product


@pytest.fixture
def asking(monkeypatch):
    """Record what Inductor's own choices and ATen's are asked."""
    between(monkeypatch, 2, 99)
    monkeypatch.setattr(recorder, "lowered_product", lambda inputs, op: inputs.product)
    monkeypatch.setattr(recorder, "is_for_aten", lambda op, templates: "aten" in templates)
    monkeypatch.setattr(AtenChoices, "get_template_configs", lambda *asked: ["own", *asked[2:]])
    monkeypatch.setattr(AtenChoices, "aten", lambda *asked: ["aten", *asked[2:]])


@pytest.mark.parametrize(
    ("device", "only_aten", "templates", "choices", "recorded"),
    [
        ("cuda", False, ["aten"], ["own", ["aten"], "mm", None], ["product"]),
        ("cuda", False, ["triton"], ["own", ["triton"], "mm", None], []),
        ("cuda", True, ["aten"], ["aten", ["aten"], "mm", None], ["product"]),
        ("cuda", True, ["triton"], [], []),
        ("cpu", True, ["aten"], ["own", ["aten"], "mm", None], ["mm: on cpu, no GPU"]),
    ],
)
def test_each_product_is_recorded_once_and_runs_what_is_asked_for(
    asking, device, only_aten, templates, choices, recorded
):
    sunk = []
    sink = SimpleNamespace(uuid="u1", add=lambda *asked: sunk.append(asked))
    inputs = Asked(device, "product")
    found = recorder.RecordingChoices(sink, only_aten=only_aten).get_template_configs(inputs, templates, "mm")
    assert found == choices
    assert sunk == [(each, "node", vars(recorder)["V"].graph) for each in recorded]


def test_a_convolution_is_recorded_and_stays_one(asking):
    sunk = []
    sink = SimpleNamespace(uuid="u1", add=lambda *asked: sunk.append(asked))
    choices = recorder.RecordingChoices(sink)
    assert choices.takes_convolution("product", None) is False
    assert sunk == [("product", "node", vars(recorder)["V"].graph)]
    assert choices.uuid() == "gemmtune-record:u1"


def test_what_is_no_product_is_not_recorded(asking):
    inputs = Asked("cuda")
    recorder.see(SimpleNamespace(add=lambda *_: pytest.fail("recorded")), inputs, ["aten"], "mm")
