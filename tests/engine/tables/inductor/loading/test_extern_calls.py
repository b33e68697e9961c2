"""A kernel is bound to the strides that its operands have: Inductor may not change them afterwards."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch._inductor import ir  # noqa: E402 (torch is there)

from gemmtune.engine.tables.inductor.loading import extern_calls  # noqa: E402


class Undecided(ir.ComputedBuffer):
    def get_fill_order(self):
        return None  # its readers do not ask for one


def computed(name, *sizes):
    """A buffer whose strides Inductor may still choose."""
    layout = ir.FlexibleLayout(torch.device("cpu"), torch.bfloat16, [*sizes])
    data = ir.Pointwise(device=layout.device, dtype=layout.dtype, inner_fn=lambda _: 0.0, ranges=layout.size)
    return ir.TensorBox(ir.StorageBox(Undecided(name=name, layout=layout, data=data)))


def test_operands_and_the_epilogues_tensors_keep_their_layouts_once_a_kernel_is_chosen(monkeypatch):
    bound = []
    kernel = SimpleNamespace(bind=lambda nodes, layout: bound.append(([*nodes], layout)) or "choice")
    monkeypatch.setattr(extern_calls, "registered", lambda _: kernel)
    a, b, further = computed("a", 16, 64), computed("b", 64, 32), computed("c", 16, 32)
    inputs = SimpleNamespace(nodes=lambda: [a, b], output_layout=lambda flexible: f"flexible {flexible}")
    assert all(isinstance(each.data.data.layout, ir.FlexibleLayout) for each in (a, b, further))
    assert extern_calls.extern_choice(None, inputs, [further]) == "choice"
    assert all(isinstance(each.data.data.layout, ir.FixedLayout) for each in (a, b, further))
    assert bound == [([a, b, further], "flexible False")]
    extern_calls.extern_choice(None, inputs, layout="its own")
    assert bound[1] == ([a, b], "its own")
