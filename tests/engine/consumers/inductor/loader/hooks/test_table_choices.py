"""Choice of a table for a product: each kind of row, what rules it out, what runs instead, and what the notes say."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import NamedTuple

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

from torch._inductor import config  # noqa: E402 (torch is there)
from torch._inductor.choices import InductorChoices  # noqa: E402
from torch._inductor.kernel.mm import decompose_k_subgraph_template  # noqa: E402

from gemmtune.engine.consumers.inductor.epilogues.reader import PLAIN, ReadEpilogue  # noqa: E402
from gemmtune.engine.consumers.inductor.loader import boundary  # noqa: E402
from gemmtune.engine.consumers.inductor.loader.explain.notes import ProductNotes  # noqa: E402
from gemmtune.engine.consumers.inductor.loader.hooks import binaries, table_choices  # noqa: E402
from gemmtune.engine.consumers.inductor.loader.hooks.table_choices import TableChoices, changed_templates  # noqa: E402
from gemmtune.engine.consumers.inductor.loader.loader_rows import InductorTable, ProductRow  # noqa: E402
from gemmtune.engine.consumers.inductor.loader.lowered import Counts, LoweredProduct  # noqa: E402
from gemmtune.engine.records.epilogue.chain import stored  # noqa: E402
from gemmtune.engine.records.epilogue.text import parse_epilogue  # noqa: E402

pytestmark = pytest.mark.filterwarnings("error")

KEY = "mm:bfloat16:nt:1x64x128:none:static"
NAME = "16x64x128:bf16:nt"
BLOCKS = {"BLOCK_M": 16, "BLOCK_K": 64}
ATEN = ProductRow(16, 16, "aten::mm", {})
TRITON = ProductRow(16, 16, "triton::mm", BLOCKS)
PARTS = ProductRow(16, 16, "decompose_k", {"k_split": 4})
CHEAP = TRITON._replace(fuses_cheap=True)
CUTE = ProductRow(16, 16, "cute::quack", {"tile": 1}, "k", ATEN)
CUTE_OR_TRITON = CUTE._replace(otherwise=TRITON)
RELU = ReadEpilogue(parse_epilogue("relu"), frozenset({"relu_1"}))
OF_RELU = LoweredProduct(16, 16, KEY, 128, RELU._replace(outputs=((None, 0),)))
ERF = ReadEpilogue(parse_epilogue("erf"), frozenset({"erf_1"}))
UNREADABLE = ReadEpilogue(None, frozenset(), "atan, no known name")
OPTIONS = "pass options=gemmtune_inductor.options() to torch.compile, and keep TRITON in max_autotune_gemm_backends"
BOTH, ATEN_ALONE, TEMPLATES = ("aten", "triton"), ("aten",), ("triton",)


class Graph(SimpleNamespace):
    """Graph that is lowered."""

    __hash__ = object.__hash__


class Inputs:
    """Operands that Inductor asks with."""

    def __init__(self, device="cuda", index=3):
        self.device = lambda: torch.device(device, index) if device == "cuda" else torch.device(device)

    def nodes(self):
        return ["a", "b"]

    def output_layout(self, flexible):
        return f"flexible {flexible}"


@pytest.fixture
def inductor(monkeypatch):
    """Stand in for Inductor: what it would answer, and what it is told."""
    node = object()
    graph = Graph(parent=None, current_node=node, aot_mode=False, cpp_wrapper=False)
    told = SimpleNamespace(
        graph=graph, product=LoweredProduct(16, 16, KEY, 128, PLAIN), gpu="NVIDIA H200", options=True, triton=True,
        made=[SimpleNamespace(choice="rendered", layout=None)], asked=[], fused=[], fixed=[], linked=[], epilogue="",
        link="", stored=None, recorded=[],
    )  # fmt: skip

    def lowered(inputs, op):
        if isinstance(told.product, Exception):
            raise told.product
        return told.product

    def link(kernel, index):
        told.linked.append((kernel.name, index))
        return told.link

    replaced = {
        "lowered_product": lowered,
        "is_for_aten": lambda op, templates: "aten" in templates,
        "is_for_templates": lambda op, templates: "triton" in templates,
        "has_options": lambda: told.options,
        "_use_autotune_backend": lambda name: told.triton and name == "TRITON",
        "keep_values": lambda: None,
        "with_whole_bias": lambda inputs, product: inputs,
        "fix_layouts": told.fixed.append,
        "fuse_only": lambda choice, nodes: told.fused.append((choice, nodes)),
        "link": link,
        "difference": lambda kernel, any_version: kernel.other if not any_version else "",
        "why_not_computed": lambda read: told.epilogue,
        "extern_choice": lambda kernel, inputs, further: f"binary {kernel.name}",
        "compute_epilogue": lambda kernel, inputs, read: told.stored,
        "registered": lambda kernel: None,
        "MMKernelInputs": Inputs,
        "V": SimpleNamespace(graph=graph),
    }
    for name, value in replaced.items():
        for module in (table_choices, binaries):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(name=told.gpu))
    monkeypatch.setattr(InductorChoices, "get_template_configs", lambda *asked: ["own", asked[2], asked[4]])
    monkeypatch.setattr(TableChoices, "aten", lambda *asked: [SimpleNamespace(name="aten", output_node=None)])
    monkeypatch.setattr(boundary, "_warned", set())

    def get_ktc(self, inputs, template, op, tuned):
        told.asked.append((template, op, tuned, config.max_autotune_gemm))
        return iter(told.made)

    monkeypatch.setattr(TableChoices, "get_ktc", get_ktc)
    return told


class Kernel(NamedTuple):
    """Fields of a binary that tests read."""

    name: str
    epilogue: object
    other: str


def table(rows=(), epilogue="none", other=""):
    kernels = {"k": Kernel("k", stored(parse_epilogue(epilogue)), other)}
    return InductorTable("hash", "NVIDIA H200", {}, {}, rows if isinstance(rows, dict) else {KEY: tuple(rows)}, kernels)


def handler(rows=(), policy="warn", miss="aten", recordings=(), refused=(), binaries=True, counts=ProductNotes, **how):
    counted = counts("NVIDIA H200", miss)
    return TableChoices(table(rows, **how), policy, counted, recordings, refused=refused, binaries=binaries)


def chosen(choices, templates=BOTH, device="cuda"):
    """Return what a table chooses for a product, with ATen's choice by its name."""
    found = choices.get_template_configs(Inputs(device), templates, "mm", {"override": {}})
    return [getattr(each, "name", each) for each in found]


def notes(choices):
    return [f"{use.outcome}: {use.detail}" for use in choices.counts.report().counts]


@pytest.mark.parametrize(
    ("row", "templates", "found", "note"),
    [
        (None, BOTH, ["aten"], "miss: ATen runs"),
        (None, TEMPLATES, [], None),
        (ATEN, BOTH, ["aten"], f"aten row: {NAME} aten::mm"),
        (ATEN, TEMPLATES, [], None),
        (TRITON, BOTH, ["rendered"], f"row: {NAME} triton::mm {BLOCKS}"),
        (TRITON, ATEN_ALONE, [], None),
        (CUTE, BOTH, ["binary k"], f"row: {NAME} cute::quack {{'tile': 1}}"),
        (CUTE, ATEN_ALONE, [], None),
    ],
)
def test_a_product_has_the_one_choice_of_its_row(inductor, row, templates, found, note):
    choices = handler([row] if row else [])
    assert (chosen(choices, templates), notes(choices)) == (found, [note] if note else [])


@pytest.mark.parametrize("bits_count", [True, False])
@pytest.mark.parametrize("stated", ["", ":lda=300"])
def test_rows_of_one_stride_serve_every_other_at_every_m_where_bits_count(inductor, bits_count, stated):
    strided = table({f"{KEY}:lda=256": (TRITON,)})._replace(batch_invariant=bits_count)
    choices = TableChoices(strided, "warn", Counts("NVIDIA H200", "aten"), (), refused=(), binaries=True)
    for m in (1, 16, 5000):
        inductor.product = LoweredProduct(m, m, KEY + stated * (m > 1), 128, PLAIN)
        assert chosen(choices) == ["rendered" if bits_count else "aten"]


def test_a_loader_without_its_report_serves_the_rows_and_counts(inductor):
    choices = handler([TRITON], counts=Counts)
    assert (chosen(choices), chosen(choices)) == (["rendered"], ["rendered"])
    inductor.product = LoweredProduct(17, 17, KEY, 128, PLAIN)
    assert chosen(choices) == ["aten"]
    with pytest.raises(RuntimeError, match=r"needs gemmtune_report.*; compiled products by use: row: 2, miss: 1$"):
        choices.counts.report()


def test_a_triton_row_is_rendered_with_its_blocks_and_its_layout(inductor):
    chosen(handler([TRITON]))
    template = table_choices.TRITON_TEMPLATES["triton::mm"]
    assert inductor.asked == [(template, "mm", {**BLOCKS, "EVEN_K": True}, True)]
    assert inductor.made[0].layout == "flexible False"
    assert inductor.fixed == [["a", "b"]]
    inductor.product = LoweredProduct(16, 16, KEY, 100, PLAIN)
    chosen(handler([TRITON]))
    assert inductor.asked[1][2] == {**BLOCKS, "EVEN_K": False}


@pytest.mark.parametrize(
    ("templates", "note"),
    [(BOTH, ["miss: Inductor tunes it"]), (TEMPLATES, ["miss: Inductor tunes it"]), (ATEN_ALONE, [])],
)
def test_inductor_may_tune_a_product_without_a_row(inductor, templates, note):
    choices = handler(miss="autotune")
    assert chosen(choices, templates) == ["own", templates, {"override": {}}]
    assert notes(choices) == note
    assert choices.autotunes
    assert not handler().autotunes


@pytest.mark.parametrize(
    ("rows", "m", "found"),
    [
        ([ProductRow(2, 64, "aten::mm", {}), TRITON], 16, ["rendered"]),  # the narrower row
        ([ProductRow(2, 64, "aten::mm", {}), ProductRow(8, 32, "triton::mm", BLOCKS)], 32, ["rendered"]),
        ([TRITON], 15, ["aten"]),
        ([TRITON], 17, ["aten"]),
        ([ProductRow(2, 64, "triton::mm", BLOCKS)], 64, ["rendered"]),
        ([ProductRow(2, 64, "triton::mm", BLOCKS)], 2, ["rendered"]),
        ([ProductRow(2, 64, "triton::mm", BLOCKS)], 65, ["aten"]),
    ],
)
def test_the_narrowest_row_that_serves_m_is_the_products(inductor, rows, m, found):
    inductor.product = LoweredProduct(m, m, KEY, 128, PLAIN)
    assert chosen(handler(rows)) == found


@pytest.mark.parametrize(
    ("read", "rows", "fused", "note"),
    [
        (PLAIN, {KEY: [CHEAP]}, frozenset(), ""),
        (RELU, {KEY: [CHEAP]}, RELU.nodes, ""),
        (RELU, {KEY: [TRITON]}, frozenset(), ", epilogue apart"),
        (ERF, {KEY: [CHEAP]}, frozenset(), ", epilogue apart"),
        (ERF, {f"{KEY}:erf": [TRITON]}, ERF.nodes, ""),
        (ERF, {f"{KEY}:erf": [TRITON._replace(first=17, last=32)], KEY: [TRITON]}, frozenset(), ", epilogue apart"),
        (UNREADABLE, {KEY: [CHEAP]}, frozenset(), ", epilogue apart: atan, no known name"),
    ],
)
def test_a_kernel_computes_what_it_was_timed_with_or_what_is_cheap(inductor, read, rows, fused, note):
    inductor.product = LoweredProduct(16, 16, KEY, 128, read)
    choices = handler(rows)
    assert chosen(choices) == ["rendered"]
    assert inductor.fused == [("rendered", fused)]
    assert notes(choices)[0].endswith(f"{BLOCKS}{note}")


@pytest.mark.parametrize("which", ["options", "triton"])
def test_a_row_that_settings_rule_out_warns_and_leaves_aten(inductor, which):
    setattr(inductor, which, False)
    choices = handler([TRITON])
    with pytest.warns(UserWarning, match="has a triton::mm row that Inductor's settings rule out: pass") as warned:
        assert chosen(choices) == ["aten"]
    assert OPTIONS in str(warned[0].message)
    assert notes(choices) == [f"unused row: {NAME} triton::mm {BLOCKS}"]
    assert chosen(choices, TEMPLATES) == []


@pytest.mark.parametrize("made", [[], [SimpleNamespace(choice=None, layout=None)]])
def test_a_row_that_cannot_be_rendered_warns_and_leaves_aten(inductor, made):
    inductor.made = made
    choices = handler([TRITON])
    with pytest.warns(UserWarning, match=r"has a triton::mm row that Inductor cannot render .*; ATen runs$"):
        assert chosen(choices) == ["aten"]
    assert notes(choices) == [f"unused row: {NAME} triton::mm {BLOCKS}"]


@pytest.mark.parametrize(
    ("policy", "gpu", "found"),
    [
        ("warn", "NVIDIA H200", ["rendered"]),
        ("strict", "NVIDIA H200", ["rendered"]),
        ("ignore", "NVIDIA L4", ["rendered"]),
    ],
)
def test_rows_apply_on_the_tables_gpu_or_on_any_by_the_policy(inductor, policy, gpu, found):
    inductor.gpu = gpu
    assert chosen(handler([TRITON], policy)) == found


def test_no_row_applies_on_another_gpu(inductor):
    inductor.gpu = "NVIDIA L4"
    choices = handler([TRITON])
    with pytest.warns(UserWarning, match="^gemmtune's table is for NVIDIA H200; on NVIDIA L4 no row applies$"):
        assert chosen(choices) == ["aten"]
    assert notes(choices) == ["miss: ATen runs; the table is for NVIDIA H200"]
    assert not choices.takes_convolution(inductor.product, torch.device("cuda", 0))


@pytest.mark.parametrize(
    ("here", "how", "reason"),
    [
        ({}, {"other": "was built for sm_90a"}, "was built for sm_90a"),
        ({}, {"binaries": False}, "needs a binary, and install(binaries=False) links none"),
        ({"link": "does not link"}, {}, "does not link"),
        ({"epilogue": "cannot store", "product": OF_RELU}, {"epilogue": "relu"}, "cannot store"),
    ],
)
@pytest.mark.parametrize("row", [CUTE, CUTE_OR_TRITON])
def test_the_next_choice_runs_where_a_binary_cannot(inductor, here, how, reason, row):
    for name, value in here.items():
        setattr(inductor, name, value)
    choices = handler({f"{KEY}:relu": [row]} if "epilogue" in how else [row], **how)
    text = f"^gemmtune's table has a row of cute::quack that {re.escape(reason)}; the row's next choice runs$"
    with pytest.warns(UserWarning, match=text):
        found = chosen(choices)
    instead = "aten::mm" if row is CUTE else f"triton::mm {BLOCKS}"
    assert found == (["aten"] if row is CUTE else ["rendered"])
    assert notes(choices)[0].startswith("next choice: ")
    assert notes(choices)[0].endswith(f"{instead} (cute::quack {reason})")


@pytest.mark.parametrize("mode", ["aot_mode", "cpp_wrapper"])
def test_code_outside_python_runs_the_next_choice(inductor, mode):
    setattr(inductor.graph, mode, True)
    choices = handler([CUTE])
    assert chosen(choices) == ["aten"]
    assert notes(choices)[0].endswith(
        "(cute::quack is called from Python, not from AOTInductor's or a C++ wrapper's code)"
    )


def test_a_binary_needs_the_options_of_a_table(inductor):
    inductor.options = False
    with pytest.warns(UserWarning, match=r"that needs options=gemmtune_inductor.options\(\) in torch.compile; the row"):
        assert chosen(handler([CUTE])) == ["aten"]


def test_a_binary_is_linked_on_the_products_gpu_and_on_the_first_by_default(inductor):
    choices = handler([CUTE])
    choices.get_template_configs(Inputs(index=3), BOTH, "mm")
    choices.get_template_configs(Inputs(index=None), BOTH, "mm")
    assert inductor.linked == [("k", 3), ("k", 0)]
    inductor.epilogue = "of no product"  # asked only where the kernel computes one
    assert chosen(choices) == ["binary k"]
    assert chosen(handler([CUTE], policy="ignore", other="another version")) == ["binary k"]


@pytest.mark.parametrize("stored", [None, "the product"])
def test_a_binary_that_computes_the_epilogue_leaves_atens_product_unread(inductor, stored):
    inductor.product = OF_RELU
    inductor.stored = stored
    choices = handler({f"{KEY}:relu": [CUTE]}, epilogue="relu")
    (choice,) = choices.get_template_configs(Inputs(), BOTH, "mm")
    assert choice.name == "aten"
    assert (choice.output_node and choice.output_node()) == stored
    assert notes(choices) == [f"row: {NAME}:epilogue=relu cute::quack {{'tile': 1}}"]


def test_a_binary_of_the_plain_product_leaves_the_epilogue_apart(inductor):
    inductor.product = LoweredProduct(16, 16, KEY, 128, RELU)
    choices = handler([CUTE])
    assert chosen(choices) == ["binary k"]
    assert notes(choices)[0].endswith("{'tile': 1}, epilogue apart")


@pytest.mark.parametrize(("templates", "note"), [(BOTH, ["other device: on the CPU"]), (TEMPLATES, [])])
def test_another_device_has_inductors_own_choices(inductor, templates, note):
    choices = handler([TRITON])
    assert chosen(choices, templates, "cpu") == ["own", templates, {"override": {}}]
    assert notes(choices) == note


def test_a_row_of_parts_of_k_is_inductors_choice(inductor):
    choices = handler([PARTS])
    assert chosen(choices) == ["rendered"]
    assert inductor.asked == [(decompose_k_subgraph_template, "mm", {"k_split": 4}, True)]
    assert notes(choices) == [f"row: {NAME} decompose_k {{'k_split': 4}}"]


@pytest.mark.parametrize("wrapper", ["aot_mode", "cpp_wrapper"])
def test_parts_of_k_are_not_used_where_inductor_cannot_split(inductor, wrapper):
    setattr(inductor.graph, wrapper, True)
    choices = handler([PARTS])
    assert chosen(choices) == ["aten"]
    assert notes(choices) == [f"unused row: {NAME} decompose_k {{'k_split': 4}}"]


def test_a_product_within_the_choice_of_parts_is_atens_and_no_use_of_the_table(inductor):
    inductor.graph.name = "decompose_k_mm_4_split_0"
    choices = handler([TRITON])
    assert chosen(choices) == ["aten"]
    assert notes(choices) == []


def test_what_is_no_problem_runs_aten_and_is_noted(inductor):
    inductor.product = "mm: n or k is dynamic"
    choices = handler([TRITON])
    assert chosen(choices) == ["aten"]
    assert notes(choices) == ["no problem: n or k is dynamic"]


@pytest.mark.parametrize(("miss", "found"), [("aten", ["aten"]), ("autotune", ["own", BOTH, {"override": {}}])])
def test_a_look_up_that_fails_warns_and_the_product_runs_as_without_a_row(inductor, miss, found):
    inductor.product = RuntimeError("torch changed")
    choices = handler([TRITON], miss=miss)
    with pytest.warns(UserWarning, match="failed in get_template_configs under torch .*: RuntimeError: torch changed"):
        assert chosen(choices) == found
    inductor.product = LoweredProduct(16, 16, KEY, 128, PLAIN)
    assert chosen(choices, TEMPLATES) == ([] if miss == "aten" else ["own", TEMPLATES, {"override": {}}])
    assert chosen(choices) == found  # torch asks again for this very product
    assert notes(choices) == ["failed: the look-up failed, see the warning"]
    assert choices.counts.report().products == 2  # the templates' question is of the product that was counted
    inductor.graph.current_node = object()
    assert chosen(choices) == ["rendered"]


@pytest.mark.parametrize(
    ("rows", "options", "takes", "note"),
    [([TRITON], True, True, []), ([TRITON], False, False, []), ([], True, False, ["miss: ATen runs"])],
)
def test_a_convolution_with_a_row_becomes_a_product(inductor, rows, options, takes, note):
    inductor.options = options
    added = []
    recording = SimpleNamespace(uuid="u", add=lambda *asked: added.append(asked))
    choices = handler(rows, recordings=[recording])
    assert choices.takes_convolution(inductor.product, torch.device("cuda", 0)) is takes
    assert notes(choices) == note
    assert added == ([(inductor.product, inductor.graph.current_node, inductor.graph)] if note else [])


def test_recordings_see_each_question(inductor):
    recording = SimpleNamespace(
        uuid="u", see=lambda inputs, templates, op: inductor.recorded.append(("u", templates, op))
    )
    choices = handler([TRITON], recordings=[recording])
    chosen(choices, TEMPLATES)
    chosen(choices, BOTH, "cpu")
    assert inductor.recorded == [("u", TEMPLATES, "mm"), ("u", BOTH, "mm")]
    assert choices.uuid().endswith(":warn:aten:hash::u")
    assert handler([TRITON], other="b").uuid().endswith(":warn:aten:hash:b")


def test_rows_of_refused_templates_do_not_apply(inductor):
    assert chosen(handler([TRITON], refused=["triton::mm"])) == ["aten"]
    assert chosen(handler([TRITON], refused=["triton::bmm"])) == ["rendered"]


def test_a_template_counts_as_changed_unless_its_one_source_is_this_torchs():
    hashes = {name: template.src_hash for name, template in table_choices.TRITON_TEMPLATES.items()}

    def changed(rows, **templates):
        found = {name.replace("_", "::"): its for name, its in templates.items()}
        return changed_templates(table(rows)._replace(templates=found))

    mm = hashes["triton::mm"]
    assert changed([TRITON], triton_mm=[mm]) == []
    assert changed([TRITON]) == changed([TRITON], triton_mm=["x"]) == changed([TRITON], triton_mm=[mm, "x"])
    assert changed([TRITON]) == changed([CUTE_OR_TRITON]) == ["triton::mm"]
    assert changed([ATEN, CUTE]) == []


def test_a_scheduler_fuses_only_what_a_rows_kernel_may_compute(monkeypatch):
    monkeypatch.setattr(InductorChoices, "can_fuse", lambda *asked: asked)
    asked = ("scheduler", "node1", "node2", 7)
    monkeypatch.setattr(table_choices, "may_fuse", lambda one, other: False)
    assert TableChoices.can_fuse(*asked) is False
    monkeypatch.setattr(table_choices, "may_fuse", lambda one, other: (one, other) == ("node1", "node2"))
    assert TableChoices.can_fuse(*asked) == asked
