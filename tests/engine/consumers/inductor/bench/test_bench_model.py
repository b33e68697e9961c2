"""Course of a model's bench without a GPU: which arms run, in what order, and what is kept of each."""

from __future__ import annotations

import contextlib
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch warns of itself
    from gemmtune.engine.consumers.inductor.bench import bench_model as module

from gemmtune.engine.consumers.inductor.bench.running import FirstCall, Prepared  # noqa: E402
from gemmtune.engine.consumers.inductor.inputs import parse_inputs  # noqa: E402 (it imports torch)
from gemmtune.engine.consumers.inductor.loader import loader  # noqa: E402
from gemmtune.engine.consumers.inductor.loader.explain.table_use import ProductUse, TableUse  # noqa: E402
from gemmtune.engine.records import catalogue  # noqa: E402
from gemmtune.engine.records.errors import UsageError  # noqa: E402
from gemmtune.engine.testing.exporter_conformance import example_table  # noqa: E402

DEVICE = catalogue.device("H200")


@pytest.fixture
def host(monkeypatch):
    """A bench of `x + 1` whose arms are not compiled; `events` has the loader's calls, `broken` the arms that fail."""
    host = SimpleNamespace(events=[], broken={}, refused="", unused="", call=lambda x: x + 1, notes=[])

    def compiled(prepared, name):
        host.events.append(f"compile {name}")
        if name in host.broken:
            raise host.broken[name]
        return prepared.arm(lambda x: host.call(x) + (0.01 if name == "table" else 0))

    def report():
        host.events.append("report")
        return TableUse({}, "GPU", unused=host.unused)

    def first_call(arm):
        return FirstCall(0.5, 2, 3)

    def in_graphs(arms, seconds):
        host.events.append(f"graphs of {', '.join(arms)} for {seconds}")
        return ({}, host.refused) if host.refused else (dict.fromkeys(arms, (1.0, 2.0)), "")

    def rounds(arms, seconds):
        host.events.append("rounds")
        return dict.fromkeys(arms, (3.0, 4.0))

    monkeypatch.setattr(module, "_prepared", lambda *_, **__: Prepared(host.call, [torch.ones(4)], {}, False))
    monkeypatch.setattr(module, "load_compiler", lambda prepared: None)
    monkeypatch.setattr(module, "compiled_arm", compiled)
    monkeypatch.setattr(module, "first_call", first_call)
    monkeypatch.setattr(module, "peak_bytes", lambda arm: 4096)
    monkeypatch.setattr(module, "cold", contextlib.nullcontext)
    monkeypatch.setattr(module, "timed_in_graphs", in_graphs)
    monkeypatch.setattr(module, "timed_rounds", rounds)
    monkeypatch.setattr(loader, "install", lambda file, binaries: host.events.append(f"install {file} {binaries}"))
    monkeypatch.setattr(loader, "uninstall", lambda: host.events.append("uninstall"))
    monkeypatch.setattr(loader, "report", report)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr("gc.collect", lambda: 0)  # a second, once other tests have left a million objects
    return host


def run(host, arms=("table", "compile"), **given):
    default = {"table": None, "loader_file": "t.json", "binaries": True, "grad": False, "seconds": 2.0}
    given = {**default, "device": DEVICE, **given}
    return module.bench_model("m:f", [torch.ones(2, 3)], arms=arms, notify=host.notes.append, **given)


def test_arms_run_in_their_own_order_and_the_table_only_in_its_arm(host):
    found = run(host, binaries=False)
    assert host.events == [
        "compile compile",
        "install t.json False",
        "report",
        "compile table",
        "report",
        "uninstall",
        "graphs of compile, table for 2.0",
    ]
    assert host.notes == ["compile: first call", "table: first call", "timing compile, table"]
    assert [(arm.arm, arm.samples_ns, arm.failure) for arm in found.arms] == [
        ("compile", (1.0, 2.0), ""),
        ("table", (1.0, 2.0), ""),
    ]
    first = found.arms[0]
    assert (first.first_call_seconds, first.product_benchmarks, first.kernel_benchmarks, first.peak_bytes) == (
        0.5,
        2,
        3,
        4096,
    )
    assert [arm.error for arm in found.arms] == [0, pytest.approx(0.005)]  # of outputs near 2
    assert (found.call, found.inputs, found.grad, found.in_graphs) == ("m:f", ("float32[2, 3]",), False, True)
    assert (found.device, found.torch) == (DEVICE.name, torch.__version__)


def test_the_error_is_the_difference_from_eager_whatever_arms_there_are(host):
    assert run(host, ["table"]).arms[0].error == pytest.approx(0.005)  # of outputs near 2


def test_calls_before_the_rounds_have_the_table_and_a_later_compilation_is_told(host, monkeypatch):
    from torch._dynamo.utils import counters

    monkeypatch.setattr(module, "peak_bytes", lambda arm: host.events.append("peak") or 4096)
    monkeypatch.setitem(counters, "stats", {"unique_graphs": 3})
    run(host, ["table"])
    assert host.events.index("peak") < host.events.index("uninstall")
    assert host.notes[-1] == "timing table"
    monkeypatch.setattr(module, "timed_rounds", lambda arms, seconds: counters["stats"].update(unique_graphs=4) or {})
    host.refused = "capturing"
    run(host, ["table"])
    assert "compiled again" in host.notes[-1]


def test_a_model_that_fails_without_compilation_is_an_error_of_usage(host):
    host.call = lambda x: 1 / 0
    with pytest.raises(UsageError, match="the callable fails: ZeroDivisionError"):
        run(host)
    assert host.events == []


def test_an_arm_that_fails_keeps_its_reason_and_uninstalls_the_table(host):
    host.broken = {"table": RuntimeError("no kernel")}
    found = run(host)
    assert [arm.failure.partition(" (")[0] for arm in found.arms] == ["", "RuntimeError: no kernel"]
    assert host.events[-2:] == ["uninstall", "graphs of compile for 2.0"]
    assert host.notes[-1] == "timing compile"
    assert found.arms[1].peak_bytes == 0
    assert found.arms[1].time is None


def test_a_table_that_cannot_be_used_here_fails_its_arm(host):
    host.unused = "the table is for another GPU"
    found = run(host, ["table"])
    assert found.arms[0].failure == "RuntimeError: the table is for another GPU"
    assert "compile table" not in host.events
    assert not [event for event in host.events if event.startswith("graphs")]
    assert not found.in_graphs


def test_arms_that_no_graph_takes_are_timed_as_calls(host):
    host.refused = "compile: RuntimeError: capturing"
    found = run(host)
    assert host.notes[-1] == "without CUDA graphs: compile: RuntimeError: capturing"
    assert host.events[-1] == "rounds"
    assert not found.in_graphs
    assert found.arms[0].samples_ns == (3.0, 4.0)


def use(problem, detail="", outcome="row", count=1):
    return ProductUse(problem, outcome, detail), count


def test_products_gain_what_their_rows_say_the_most_first():
    [first, second, *_] = (row.problem.name for row in example_table().rows)
    counts = dict([use(second), use(first, count=3), use("1x2x3", "x"), use("fused", f"{first} and more", "miss")])
    gains = module.gains(SimpleNamespace(counts=counts), example_table())
    assert {gain.problem: gain.count for gain in gains} == {first: 3, second: 1, "1x2x3": 1, "fused": 1}
    assert [gain.saved_ns for gain in gains] == sorted((gain.saved_ns for gain in gains), reverse=True)
    by_name = {gain.problem: gain for gain in gains}
    assert (by_name["fused"].row_ns, by_name["1x2x3"].row_ns) == (by_name[first].row_ns, None)
    assert by_name[first].baseline_ns == 20_000
    assert [gain.baseline_ns for gain in module.gains(SimpleNamespace(counts=counts), None)] == [None] * 4


def test_models_are_trained_for_gradients_and_inputs_are_made_in_their_places(monkeypatch):
    monkeypatch.setattr(module, "GPU", torch.device("cpu"))
    model = torch.nn.Linear(3, 3)
    specs, _ = parse_inputs(["fp32[2,3]", "mask=int64[2]"])
    inputs = [*specs, 7, torch.ones(1)]
    prepared: Any = module._prepared(model, inputs, grad=True)
    assert model.training
    assert prepared.call is model
    x, seven, ones = prepared.positional
    assert (x.shape, x.requires_grad, seven, ones.tolist()) == ((2, 3), True, 7, [1.0])
    assert prepared.named["mask"].shape == (2,)
    assert prepared.grad
    again: Any = module._prepared(model, inputs[:1], grad=False)
    assert not model.training
    assert not again.positional[0].requires_grad
    assert torch.equal(again.positional[0], x)


def test_an_input_is_named_by_its_type_and_sizes():
    [spec], _ = parse_inputs(["bf16[2,3]"])
    assert module._text(spec) == "bf16[2,3]"
    assert module._text(torch.ones(2, dtype=torch.int64)) == "int64[2]"
    assert module._text(3) == "int"


def test_kernels_are_tuned_right_before_the_arm_with_the_table(host, monkeypatch):
    monkeypatch.setattr(module, "generated_rows", lambda _, file, binaries: (f"rows of {file} {binaries}",))
    run(host, keep=host.events.extend)
    before = host.events.index("rows of t.json True")
    assert host.events[:before] == ["compile compile"]
    assert host.events[before + 1] == "install t.json True"
