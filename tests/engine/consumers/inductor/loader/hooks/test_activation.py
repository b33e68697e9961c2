"""Functions that take the place of Inductor's while a handler is in place, and what a torch may lack."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

from torch._inductor import config  # noqa: E402 (torch is there)

from gemmtune.engine.consumers.inductor.loader.hooks import activation  # noqa: E402
from gemmtune.engine.consumers.inductor.loader.hooks.table_choices import TableChoices  # noqa: E402


def named(name):
    return lambda *asked, **options: (name, asked, options)


@pytest.mark.parametrize(
    ("padding", "undone", "decides"),
    [(False, False, "table"), (True, False, "torch"), (False, True, "torch"), (True, True, "torch")],
)
def test_the_table_decides_to_pad_where_its_options_turn_torchs_padding_off(monkeypatch, padding, undone, decides):
    monkeypatch.setattr(activation, "should_pad", named("table"))
    owner, replaced = SimpleNamespace(pads=named("torch")), activation._Replaced()
    replaced.function(owner, "pads", activation.pads)
    replaced.is_undone = undone
    with config.patch(shape_padding=padding):
        assert owner.pads(1, key=2) == (decides, (1,), {"key": 2})


@pytest.mark.parametrize("undone", [False, True])
def test_a_large_kernel_is_tuned_and_a_graph_seen_until_the_handler_is_gone(monkeypatch, undone):
    monkeypatch.setattr(activation, "_is_large", lambda kernel: kernel == "large")
    tuning = lambda *_, **__: config.coordinate_descent_tuning  # noqa: E731 (takes the place of a method)
    owner, replaced = SimpleNamespace(generate=tuning, run=named("ran")), activation._Replaced()
    replaced.function(owner, "generate", activation.tuned_if_large)
    seen = []
    handler = SimpleNamespace(counts=SimpleNamespace(see_graph=seen.append), _recordings=[object()])
    replaced.function(owner, "run", partial(TableChoices.run_graph, handler))
    replaced.is_undone = undone
    assert [owner.generate(kernel, 1, key=2) for kernel in ("large", "small")] == [not undone, False]
    assert owner.run("graph", 1, key=2) == ("ran", ("graph", 1), {"key": 2})
    assert seen == ([] if undone else ["graph"])


@pytest.mark.skipif(bool(activation._register), reason="this torch keeps the uuids of handlers")
def test_a_cache_key_holds_the_handlers_uuid():
    from torch._inductor.codegen.common import custom_backend_passes

    activation.activate(SimpleNamespace(uuid=lambda: "gemmtune-table:1", run_graph=None))
    tag = custom_backend_passes[activation._NAME]
    activation.restore()
    assert (tag.uuid(), tag(None)) == ("gemmtune-table:1", None)
    assert activation._NAME not in custom_backend_passes


@pytest.mark.parametrize(
    ("owner", "name", "instead", "lacks"),
    [
        ("InductorChoices", "get_ktc", None, "InductorChoices.get_ktc"),
        (
            "InductorChoices",
            "get_template_configs",
            lambda self, other: None,
            "InductorChoices.get_template_configs with the known parameters",
        ),
        (
            "InductorChoices",
            "get_template_configs",
            None,
            "InductorChoices.get_template_configs with the known parameters",
        ),
        (
            "InductorChoices",
            "can_fuse",
            lambda scheduler, node1, node2: None,
            "InductorChoices.can_fuse with the known parameters",
        ),
        ("TritonKernel", "codegen_kernel", None, "TritonKernel.codegen_kernel and estimate_kernel_num_bytes"),
        (
            "TritonKernel",
            "estimate_kernel_num_bytes",
            None,
            "TritonKernel.codegen_kernel and estimate_kernel_num_bytes",
        ),
        ("virtualized", "V", None, "virtualized.V.choices"),
        ("virtualized", "_choices", None, "virtualized._choices with _key and _default"),
        ("virtualized", "_choices", SimpleNamespace(_key="choices"), "virtualized._choices with _key and _default"),
    ],
)
def test_the_first_part_that_a_torch_lacks_is_named(monkeypatch, owner, name, instead, lacks):
    real = getattr(activation, owner)
    # A stand-in with all of the parts but one.
    parts = {each: getattr(real, each) for each in dir(real) if not each.startswith("__")}
    parts.pop(name)
    parts |= {name: instead} if instead is not None else {}
    monkeypatch.setattr(activation, owner, SimpleNamespace(**parts))
    assert activation.lacking() == lacks


def test_private_names_that_are_gone_are_all_named(monkeypatch):
    assert activation.lacking() == ""
    monkeypatch.setattr(activation, "absent", ["torch._inductor.a", "torch._inductor.b"])
    assert activation.lacking() == "torch._inductor.a and torch._inductor.b"


def test_nothing_is_put_back_where_nothing_was_replaced(monkeypatch):
    monkeypatch.setattr(activation, "_replaced", [])
    activation.restore()
    undone = []
    activation._replaced.append(SimpleNamespace(undo=lambda: undone.append(True)))
    activation.restore()
    activation.restore()
    assert undone == [True]
