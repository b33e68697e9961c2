"""Tables of own Triton kernels, and their loader with the real autotuner."""

from __future__ import annotations

import importlib.util
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="triton is not installed")

import torch
import triton

from gemmtune.engine.consumers.triton.exporter import TritonExporter
from gemmtune.engine.io.bundled import bundle_text
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, Row, Table
from gemmtune.engine.seams.kinds import expand_workloads
from gemmtune.engine.tables.sealed import seal_of
from gemmtune.engine.tables.table_file import read_table, write_table
from gemmtune.engine.testing.exporter_conformance import example_table

EXAMPLES = Path(__file__).parents[4] / "docs/examples/own_kernel"
TUNED = Config({"ROWS": 4, "STEPS": 2, "num_warps": 8, "num_stages": 3})
CLASSES = """

class SoftmaxFp32(Softmax):
    cases = {"attention": {"rows": 2048, "columns": 1024}, "narrow": {"rows": 4096, "columns": 512}}
    nearest = "columns"

    def arguments(self, case, make):
        found = super().arguments(case, make)
        tensors = {name: make.empty(found[name].shape, torch.float32) for name in ("out", "x")}
        return {**found, **tensors}
"""


def row(problem, config, space="triton_kernel"):
    choice = Choice(
        space, config, 9e3, 8.9e3, 9.1e3, 32, Evidence.MEASURED, f"triton {triton.__version__}", "graph-cold-l2"
    )
    return Row(problem, (choice,), None, 0.0, (config,), regret_bound=0.001)


def exported(folder, rows):
    for name, text in TritonExporter().export(Table(catalogue.device("H200"), tuple(rows), "latency")).items():
        (folder / name).write_text(text, encoding="utf-8")
    return module(folder / "gemmtune_triton.py")


def module(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.fixture
def cases():
    return expand_workloads(f"triton:{EXAMPLES / 'softmax.py'}:Softmax")


@pytest.fixture
def kernel(monkeypatch):
    """Kernel of the example, freshly imported, with the launch below its autotuner replaced: there is no GPU."""
    found = module(EXAMPLES / "softmax.py").softmax_kernel
    monkeypatch.setattr(found.fn, "run", lambda *_, **given: launched.append(given))
    monkeypatch.setattr(found, "_do_bench", lambda *_, **__: benchmarked.append(1) or [1.0])
    launched, benchmarked = [], []
    found.launched, found.benchmarked = launched, benchmarked
    return found


def launch(kernel, rows, columns, dtype=torch.bfloat16):
    x = torch.empty((rows, columns), dtype=dtype, device="meta")
    kernel[(1,)](torch.empty_like(x), x, rows, columns, COLUMNS=triton.next_power_of_2(columns))
    return {name: kernel.launched[-1][name] for name in ("ROWS", "STEPS", "num_warps", "num_stages")}


def test_a_loaded_table_leaves_the_autotuner_nothing_to_benchmark(tmp_path, cases, kernel, monkeypatch):
    heard = []
    if tells := hasattr(getattr(triton.knobs, "autotuning", None), "listener"):  # Triton 3.9 and newer
        monkeypatch.setattr(triton.knobs.autotuning, "listener", lambda **told: heard.append(told["cache_hit"]))
    other = TUNED.json.replace('"ROWS":4', '"ROWS":1')
    loader = exported(tmp_path, [row(cases[0], TUNED), row(cases[1], Config.from_json(other))])
    assert loader.load(kernel, device="NVIDIA H200") == 2
    assert launch(kernel, 32768, 1024) == dict(TUNED)
    assert launch(kernel, 4096, 8192)["ROWS"] == 1
    assert launch(kernel, 30000, 1024) == dict(TUNED)  # the nearest number of rows with as many columns
    assert kernel.benchmarked == heard == []
    assert loader.report() == {}
    launch(kernel, 4096, 512)  # no row has as many columns
    launch(kernel, 4096, 512)
    assert len(kernel.benchmarked) == 4  # the kernel's own configs
    assert heard == [False] * tells
    assert loader.report() == {"softmax_kernel(4096, 512, torch.bfloat16, torch.bfloat16)": 2}


def test_the_nearest_of_several_sizes_serves(tmp_path, cases, kernel):
    sizes = {size: Config({**TUNED, "ROWS": rows}) for size, rows in ((1024, 1), (4096, 2), (16384, 8))}
    loader = exported(tmp_path, [row(cases[0].resized(size), config) for size, config in sizes.items()])
    loader.load(kernel, device="NVIDIA H200")
    found = [launch(kernel, rows, 1024)["ROWS"] for rows in (1, 1024, 2559, 2561, 10000, 10300, 1 << 20)]
    assert found == [1, 1, 1, 2, 2, 8, 8]


def test_every_class_of_a_kernel_is_loaded_with_its_own_nearest_size(tmp_path, cases, kernel):
    file = tmp_path / "softmaxes.py"
    file.write_text((EXAMPLES / "softmax.py").read_text() + CLASSES)
    wide, narrow = expand_workloads(f"triton:{file}:SoftmaxFp32")
    configs = [Config({**TUNED, "ROWS": rows}) for rows in (1, 2, 4, 8)]
    loader = exported(tmp_path, map(row, [*cases, wide, narrow], configs))
    entries = json.loads((tmp_path / "triton_table.json").read_text())["kernels"]
    assert [(each["kernel"], each["nearest"]) for each in entries] == [
        ("Softmax", "n_rows"),
        ("SoftmaxFp32", "n_columns"),
    ]
    assert entries[0]["source_sha256"] == entries[1]["source_sha256"]
    assert loader.load(kernel, device="NVIDIA H200") == 4
    bf16 = [launch(kernel, *sizes)["ROWS"] for sizes in ((32768, 1024), (4096, 8192), (100, 8192))]
    fp32 = [launch(kernel, *sizes, torch.float32)["ROWS"] for sizes in ((2048, 1024), (4096, 512), (4096, 100))]
    assert (bf16, fp32, kernel.benchmarked) == ([1, 2, 2], [4, 8, 8], [])
    launch(kernel, 1000, 1024, torch.float32)  # in fp32, the number of rows must be a tuned one
    assert kernel.benchmarked


def test_a_row_of_the_default_loads_the_default(tmp_path, cases, kernel):
    exported(tmp_path, [row(cases[0], Config({}), "triton_default")]).load(kernel, device="NVIDIA H200")
    assert launch(kernel, 32768, 1024) == {"ROWS": 1, "STEPS": 1, "num_warps": 4, "num_stages": 2}


def test_a_kernel_without_an_autotuner_loads_through_an_empty_one(tmp_path, monkeypatch):
    case = expand_workloads(f"triton:{EXAMPLES / 'int4_gemm.py'}:Int4Gemm")[0]
    config = Config({"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 128, "num_warps": 2, "num_stages": 4})
    plain = module(EXAMPLES / "int4_gemm.py").int4_gemm_kernel
    tuned = triton.autotune([triton.Config({})], key=["M", "N", "K"])(plain)
    assert exported(tmp_path, [row(case, config)]).load(tuned, device="NVIDIA H200") == 1
    launched = []
    monkeypatch.setattr(plain, "run", lambda *_, **given: launched.append(given))
    tensors = [
        torch.empty(1, dtype=dtype, device="meta") for dtype in (*[torch.bfloat16] * 2, torch.uint8, torch.bfloat16)
    ]
    tuned[(1,)](*tensors, 20, 4096, 4096)
    assert {name: launched[0][name] for name in config} == dict(config)


def test_the_loader_refuses_another_source_and_another_gpu(tmp_path, cases, kernel):
    loader = exported(tmp_path, [row(cases[0], TUNED)])
    with pytest.raises(ValueError, match="the table is for NVIDIA H200, not NVIDIA A100: tune on this GPU"):
        loader.load(kernel, device="NVIDIA A100")
    path = next(tmp_path.rglob("triton_table.json"))
    text = path.read_text()
    path.write_text(bundle_text({"NVIDIA H200": text, "NVIDIA H100": text}))
    with pytest.raises(ValueError, match="the table is for NVIDIA H100 or NVIDIA H200, not NVIDIA A100"):
        loader.load(kernel, path, device="NVIDIA A100")
    assert loader.load(kernel, path, device="NVIDIA H200") == 1
    path.write_text(text)
    edited = tmp_path / "edited.py"
    edited.write_text((EXAMPLES / "softmax.py").read_text().replace("tl.exp(", "tl.math.exp("))
    with pytest.raises(ValueError, match=r"the kernel's source is \w{12}, and the table has Softmax \(\w{12}\)"):
        loader.load(module(edited).softmax_kernel, device="NVIDIA H200")
    other_configs = tmp_path / "configs.py"
    other_configs.write_text((EXAMPLES / "softmax.py").read_text().replace("num_warps=16", "num_warps=32"))
    assert loader.load(module(other_configs).softmax_kernel, device="NVIDIA H200") == 1


def test_two_configs_for_one_key_of_the_autotuner_are_refused(tmp_path, cases, kernel):
    rows = [row(cases[0].resized(size), Config({**TUNED, "ROWS": size // 1024})) for size in (1024, 4096)]
    loader = exported(tmp_path, rows)
    kernel.keys = ["n_columns"]
    with pytest.raises(ValueError, match=r"one key of the autotuner \(n_columns\) and two .* add n_rows to its key"):
        loader.load(kernel, device="NVIDIA H200")
    kernel.keys = ["n_rows"]
    assert loader.load(kernel, device="NVIDIA H200") == 2


def test_the_loader_needs_nothing_of_gemmtune(tmp_path, cases):
    exported(tmp_path, [row(cases[0], TUNED)])
    text = (tmp_path / "gemmtune_triton.py").read_text()
    assert "import gemmtune" not in text
    assert "from gemmtune" not in text
    facts = json.loads((tmp_path / "triton_table.json").read_text())["kernels"][0]["rows"][0]
    assert facts["arguments"] == {"n_rows": "32768", "n_columns": "1024", "COLUMNS": "1024"}
    assert facts["dtypes"] == ["torch.bfloat16", "torch.bfloat16"]
    assert facts["facts"]["time_ns"] == 9e3


def test_a_table_of_kernels_reads_back_as_it_was_written(tmp_path, cases):
    table = Table(catalogue.device("H200"), (row(replace(cases[0], weight=4.0), TUNED),), "latency")
    write_table(tmp_path / "table.json", table)
    assert read_table(tmp_path / "table.json").rows == table.rows
    assert read_table(tmp_path / "table.json").rows[0].problem.weight == 4


def signed(record):
    """Return the text of a table that somebody edited and signed again."""
    text = json.dumps(record | {"sha256": ""})
    return text.replace('"sha256": ""', f'"sha256": "{seal_of(text.encode(), "")}"')


def edited(record, *, row=None, params=None, **fields):
    """Return a table whose first row, first kernel's params, or first kernel has other values."""
    kernel = record["kernels"][0]
    rows = [{**kernel["rows"][0], **(row or {})}, *kernel["rows"][1:]]
    kernels = [{**kernel, "rows": rows, "params": {**kernel["params"], **(params or {})}, **fields}]
    return record | {"kernels": kernels}


def with_option(name, value):
    """Return an edit that gives the config and the params a value."""
    return {"row": {"config": {**TUNED, name: value}}, "params": {name: [value]}}


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (with_option("num_warps", 3), "params.'num_warps'=3 is not one of 1, 2, 4, 8"),
        (with_option("num_warps", True), "params.'num_warps'=True is not one of 1"),
        (with_option("num_ctas", 3), "params.'num_ctas'=3 is not one of 1, 2"),
        (with_option("num_warps", "None"), "params.'num_warps'='None' is not one of 1"),
        (with_option("ROWS", "tl.fp33"), "tl.fp33 is no type that the installed tl has"),
        (with_option("maxnreg", 10**9), "params.'maxnreg'=1000000000 is not one of"),
        (with_option("ir_override", "/tmp/evil.ptx"), "the kernel has no argument 'ir_override'"),
        (with_option("pre_hook", "os.system"), "the kernel has no argument 'pre_hook'"),
        (with_option("debug", True), "the kernel has no argument 'debug'"),
        (with_option("ROWS", "a\nb"), "is not 1 to 300 printable characters"),
        (with_option("ROWS", 1e400), "Infinity is not a finite number"),
        (with_option("ROWS", None), "is not a list of numbers and texts"),
        ({"row": {"config": {**TUNED, "ROWS": -1}}}, "config.ROWS=-1 is not one of 4"),
        ({"row": {"config": {**TUNED, "ROWS": "text"}}}, "config.ROWS='text' is not one of 4"),
        ({"row": {"config": {**TUNED, "other": 1}}}, "config.'other' is not one of params"),
        ({"params": {"ROWS": [4, "text"]}}, "params.'ROWS' has numbers and texts"),
        ({"row": {"arguments": {"n_rows": 1}}}, "arguments.'n_rows'=1 is not text"),
        ({"row": {"arguments": {"n_rows": "os.system"}}}, "arguments.'n_rows'='os.system' is no text of an argument"),
        ({"row": {"arguments": {"n_rows": "1"}}}, "arguments lacks n_columns"),
        ({"row": {"dtypes": "torch.bfloat16"}}, "is not a list"),
        ({"row": {"facts": {"problem": {"a": [1]}}}}, "is not a number"),
        ({"row": {"facts": {"problem": "a\x1b[31m"}}}, "may not be printed"),
        ({"row": {"facts": {}}}, "facts has no problem"),
        ({"row": {"pre_hook": 1}}, "unknown field 'pre_hook'"),
        ({"rows": None}, "rows=None is not a list"),
        ({"nearest": "n_other"}, "nearest='n_other' is not one of its arguments"),
        ({"kernel": None}, "kernel=None is not text"),
        ({"params": {"ROWS": []}}, "config.ROWS=4 is not one of"),
    ],
    ids=lambda value: str(value)[:60] if isinstance(value, str) else "",
)
def test_a_table_with_a_value_that_gemmtune_does_not_ship_is_refused(tmp_path, cases, kernel, edit, said):
    loader = exported(tmp_path, [row(cases[0], TUNED)])
    path, cache = tmp_path / "triton_table.json", kernel.cache
    path.write_text(signed(edited(json.loads(path.read_text()), **edit)))
    with pytest.raises((TypeError, ValueError), match=re.escape(said)) as refused:
        loader.load(kernel, device="NVIDIA H200")
    assert str(refused.value).startswith(f"{path}: ")
    assert "\n" not in str(refused.value)
    assert kernel.cache is cache


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (lambda table: json.dumps(table | {"schema": 99}), "schema=99 (written by gemmtune"),
        (lambda table: json.dumps(table | {"objective": "energy"}), "edited after it was written"),
        (lambda table: json.dumps(table).replace('"STEPS": 2', '"STEPS": NaN'), "NaN is not a finite number"),
        (lambda table: json.dumps(table)[:-9], "not JSON, or truncated"),
        (lambda table: signed(table | {"strange": 1}), "unknown field 'strange'"),
        (lambda table: signed(table | {"kernels": {}}), "kernels={} is not a list"),
        (lambda _: "[]", "not a table for triton"),
    ],
    ids=["schema", "edited", "NaN", "truncated", "unknown", "kernels", "list"],
)
def test_a_broken_table_is_refused(tmp_path, cases, kernel, text, said):
    loader = exported(tmp_path, [row(cases[0], TUNED)])
    path = tmp_path / "triton_table.json"
    path.write_text(text(json.loads(path.read_text())))
    with pytest.raises((TypeError, ValueError), match=re.escape(said)):
        loader.load(kernel, device="NVIDIA H200")


def test_a_kernel_without_an_autotuner_is_named(tmp_path, cases):
    loader = exported(tmp_path, [row(cases[0], TUNED)])
    with pytest.raises(ValueError, match=r"has no autotuner: wrap it in triton\.autotune"):
        loader.load(module(EXAMPLES / "int4_gemm.py").int4_gemm_kernel, device="NVIDIA H200")


def test_rows_that_the_loader_cannot_tell_apart_are_refused_unless_they_have_a_config_in_common(tmp_path, cases):
    renamed = replace(cases[0], kernel="OtherSoftmax")
    assert exported(tmp_path, [row(cases[0], TUNED), row(renamed, TUNED)])
    with pytest.raises(TableError, match=r"triton:Softmax@.* and triton:OtherSoftmax@.* launch one kernel with equal"):
        exported(tmp_path, [row(cases[0], TUNED), row(renamed, Config({**TUNED, "ROWS": 1}))])
    other_types = replace(renamed, dtypes=("torch.float32",) * 2)
    assert exported(tmp_path, [row(cases[0], TUNED), row(other_types, Config({**TUNED, "ROWS": 1}))])


def test_rows_of_gemms_are_refused_by_name():
    with pytest.raises(TableError, match="16x4096x4096:bf16:nt: space 'aten' is no own Triton kernel"):
        TritonExporter().export(example_table())
