"""A broken table is refused in one line, and Inductor chooses as before."""

from __future__ import annotations

import ast
import gc
import hashlib
import json
import pkgutil
import re
import time
import warnings
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest

from gemmtune.engine.consumers.cute.exporter import CuteExporter
from gemmtune.engine.consumers.inductor.exporter import InductorExporter, product_key
from gemmtune.engine.consumers.inductor.written import parse_written_table
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, RangeRow, Row
from gemmtune.engine.seams.kernel_call import RUNTIME_PACKAGES
from gemmtune.engine.tables.export import export_bundle
from gemmtune.engine.tables.kernels.binary import kernel_name, packed
from gemmtune.engine.testing.exporter_conformance import example_table
from gemmtune.engine.toolchain.releases import TORCH_VERSIONS, source_hash

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

TILES = {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 128, "GROUP_M": 8, "num_stages": 3, "num_warps": 4}
PROBLEM = Problem.parse("64x96x200:bf16:nt")
KEY = product_key(PROBLEM)


def choice(toolchain):
    return Choice("triton_mm", Config(TILES), 100.0, 99.0, 101.0, 32, Evidence.MEASURED, toolchain, "events-cold-l2")


def exported(toolchain=None, *more):
    toolchain = f"torch {version('torch')}" if toolchain is None else toolchain
    rows = tuple(Row(problem, (choice(toolchain),), None, 0.0, ()) for problem in (PROBLEM, *more))
    ranged = RangeRow(replace(PROBLEM, m=256), 65, 256, choice(toolchain), ((256, 0.0),))
    table = replace(example_table(), rows=rows, ranges=(ranged,))
    return InductorExporter().export(table)["inductor_table.json"]


def sealed(record):
    """Return the text of a record with the hash that fits it, as a faulty exporter would write it."""
    seal = hashlib.sha256(json.dumps({**record, "sha256": ""}, separators=(",", ":")).replace(" ", "").encode())
    return json.dumps({**record, "sha256": seal.hexdigest()})


def with_rows(rows, key=KEY):
    return sealed({**json.loads(exported()), "rows": {key: rows}})


def entry(**changes):
    return {
        "first": 64,
        "last": 64,
        "template": "triton::mm",
        "kwargs": TILES,
        "fuses_cheap": True,
        "facts": {},
        "kernel": None,
        "otherwise": None,
        **changes,
    }


@pytest.fixture
def loader():
    from gemmtune.engine.consumers.inductor.loader import loader as inductor

    yield inductor
    inductor.uninstall()


@pytest.fixture
def file(tmp_path):
    return tmp_path / "inductor_table.json"


def templates():
    from gemmtune.engine.consumers.inductor.loader.hooks.table_choices import TRITON_TEMPLATES

    return TRITON_TEMPLATES


OPTIONS = {"max_autotune_gemm": False, "shape_padding": False, "coordinate_descent_tuning": False}


def chooser():
    from torch._inductor.virtualized import V

    return type(V.choices).__name__


@pytest.mark.parametrize("collects", [True, False])
def test_reading_leaves_the_search_for_cycles_as_it_was(loader, file, collects):
    was, whole = gc.isenabled(), exported()
    (gc.enable if collects else gc.disable)()
    try:
        for text in (whole, whole[:-20]):
            file.write_text(text)
            with suppress(ValueError):
                loader.sizes(file)
            assert gc.isenabled() is collects
    finally:
        (gc.enable if was else gc.disable)()


def refused(loader, file, text, error, message):
    file.write_text(text)
    with pytest.raises(error, match=message) as caught:
        loader.install(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert "\n" not in str(caught.value)
    assert chooser() == "InductorChoices"


@pytest.mark.parametrize("kept", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
def test_a_table_truncated_anywhere_is_refused(loader, file, kept):
    text = exported()
    refused(loader, file, text[: len(text) * kept // 10], ValueError, "not JSON, or truncated: .*line")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"BLOCK_M": 64', '"BLOCK_M": 32'),
        (":nt:", ":nn:"),
        ("NVIDIA H200", "NVIDIA H100"),
        ('"last": 64', '"last": 65'),
    ],
    ids=["config", "layout", "device", "range"],
)
def test_a_table_edited_anywhere_is_refused(loader, file, before, after):
    text = exported()
    assert before in text
    refused(
        loader, file, text.replace(before, after, 1), ValueError, "edited after it was written: its sha256 does not"
    )


def test_a_newer_schema_is_named_before_its_fields_are_looked_at(loader, file):
    newer = {**json.loads(exported()), "schema": 7, "gemmtune": "9.1", "strange": 1}
    refused(
        loader, file, sealed(newer), ValueError, r"schema=7 \(written by gemmtune '9\.1'\) is not 6, .*beside the table"
    )


def test_a_repeated_field_is_refused(loader, file):
    text = exported().replace('"first": 64', '"first": 64, "first": 64', 1)
    refused(loader, file, text, ValueError, "edited after it was written")


@pytest.mark.parametrize("text", ["[]", "{}", '"table"', '{"NVIDIA H200+((...))+mm": []}'])
def test_another_file_is_refused(loader, file, text):
    refused(loader, file, text, TypeError, "not a table for inductor: export one with gemmtune export --to inductor")


@pytest.mark.parametrize(
    ("change", "field"), [({"strange": 1}, "strange"), ({"device": ...}, "device"), ({"made_with": ...}, "made_with")]
)
def test_an_unknown_or_missing_field_is_refused_by_name(loader, file, change, field):
    record = {name: value for name, value in {**json.loads(exported()), **change}.items() if value is not ...}
    refused(loader, file, sealed(record), ValueError, f"the table has the (unknown|missing) field '{field}'")


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ([entry(first=0)], ValueError, r"row 1: first=0 is not in range\(1, 2147483648\)"),
        ([entry(last=10**30)], ValueError, r"row 1: last=10{30} is not in range\(1, 2147483648\)"),
        ([entry(last="64")], ValueError, "last='64' is not in range"),
        ([entry(last=65), entry(first=True)], ValueError, "row 2: first=True is not in range"),
        (["aten::mm"], TypeError, "row 1: it='aten::mm' is not an object"),
        ([entry(strange=1)], ValueError, "row 1: it has the unknown field 'strange'"),
        ([{"template": "aten::mm"}], ValueError, "row 1: it has the missing field 'facts'"),
        ([entry(template="triton::bmm")], ValueError, r"template='triton::bmm' is not in \('aten::mm', 'triton::mm'"),
        ([entry(template=["triton::mm"])], ValueError, r"template=\['triton::mm'\] is not in \('aten::mm', "),
        ([entry(kwargs={**TILES, "EVEN_K": True})], ValueError, "kwargs has the unknown field 'EVEN_K'"),
        ([entry(kwargs={"BLOCK_M": 64})], ValueError, "kwargs has the missing field 'BLOCK_K'"),
        ([entry(kwargs=[])], TypeError, r"kwargs=\[\] is not an object"),
        ([entry(kwargs={**TILES, "BLOCK_M": "64"})], ValueError, r"kwargs.BLOCK_M='64' is not in \(1, 2, 4, "),
        ([entry(kwargs={**TILES, "num_warps": True})], ValueError, r"num_warps=True is not in \(1, 2, 4, 8, 16, 32\)"),
        ([entry(kwargs={**TILES, "num_warps": 4.0})], ValueError, "num_warps=4.0 is not in"),
        ([entry(kwargs={**TILES, "num_warps": 3})], ValueError, "num_warps=3 is not in"),
        ([entry(kwargs={**TILES, "num_warps": 64})], ValueError, "num_warps=64 is not in"),
        ([entry(kwargs={**TILES, "BLOCK_N": 48})], ValueError, "BLOCK_N=48 is not in"),
        ([entry(kwargs={**TILES, "BLOCK_N": 2**40})], ValueError, "BLOCK_N=1099511627776 is not in"),
        ([entry(kwargs={**TILES, "GROUP_M": 2**62})], ValueError, "GROUP_M=4611686018427387904 is not in"),
        ([entry(kwargs={**TILES, "num_stages": 0})], ValueError, r"num_stages=0 is not in range\(1, 11\)"),
        ([entry(kwargs={**TILES, "num_stages": 10**9})], ValueError, "num_stages=1000000000 is not in"),
        ([entry(fuses_cheap=1)], ValueError, r"fuses_cheap=1 is not in \(False, True\)"),
        ([entry(otherwise={})], ValueError, r"otherwise, without a kernel,={} is not in \(None,\)"),
        ([entry(kernel="gemmtune_x_0")], ValueError, r"kernel='gemmtune_x_0' is not in \[\]"),
    ],
)
def test_an_invalid_row_is_refused_in_one_line(loader, file, rows, error, message):
    refused(loader, file, with_rows(rows), error, message)


@pytest.mark.parametrize(
    "key", ["", "nm", KEY.replace("mm:", "badmm:"), KEY.replace("96", "0"), KEY + ":x y", KEY + ":lda=x"]
)
def test_a_key_that_names_no_product_is_refused(loader, file, key):
    message, text = "rows: the key .* names no product of mm, addmm, bmm, baddbmm", with_rows([entry()], key)
    with pytest.raises(ValueError, match=message):
        parse_written_table(text.encode())
    if not key.startswith("mm:"):  # a product's key that is none serves nothing
        refused(loader, file, text, ValueError, message)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([entry(), entry()], "two rows are for m=64"),
        ([entry(last=128), entry(first=128, last=256)], "m=128 is in two ranges"),
        ([entry(first=65)], "last=64 is less than first=65"),
    ],
)
def test_rows_that_are_for_one_m_are_refused_where_they_are_written(rows, message):
    with pytest.raises(ValueError, match=f"{KEY}: {message}"):
        parse_written_table(with_rows(rows).encode())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"made_with": {"numpy": ["2"]}}, "made_with has the unknown field 'numpy'; known: torch, triton"),
        ({"templates": {"triton::mm": "0"}}, "templates.triton::mm='0' is not a list"),
    ],
)
def test_versions_that_no_exporter_writes_are_refused_where_they_are_written(change, message):
    with pytest.raises((TypeError, ValueError), match=message):
        parse_written_table(sealed({**json.loads(exported()), **change}).encode())


def test_a_key_that_may_not_be_printed_is_refused(loader, file):
    message = r"rows has the field 'mm:.*\\n', which may not be printed"
    refused(loader, file, with_rows([entry()], KEY + "\n"), ValueError, message)


@pytest.mark.parametrize("schema", [True, 5, 6.0, "6", None, [6]])
def test_another_schema_is_refused_whatever_its_type(loader, file, schema):
    refused(loader, file, sealed({**json.loads(exported()), "schema": schema}), ValueError, "schema=.* is not 6, which")


def test_a_missing_file_is_named_with_the_command_that_writes_one(loader, file):
    with pytest.raises(FileNotFoundError) as missing:
        loader.install(file)
    assert str(missing.value).startswith(f"{file}: no table can be read there (No such file or directory): ")
    assert "gemmtune export table.json --to inductor" in str(missing.value)
    with pytest.raises(FileNotFoundError, match=r"beside its loader .* pass its path: install\(path\)"):
        loader.install()
    with pytest.raises(NotADirectoryError, match="gemmtune export"):  # beside a loader in a zip file
        loader.install(f"{loader.__file__}/inductor_table.json")


def test_a_refused_second_table_leaves_the_first_in_place(loader, file):
    file.write_text(exported())
    loader.install(str(file))
    assert chooser() == "TableChoices"
    file.write_text("{")
    with pytest.raises(ValueError, match="not JSON"):
        loader.install(file)
    assert chooser() == "TableChoices"
    loader.uninstall()
    assert chooser() == "InductorChoices"


def test_a_warning_that_is_an_error_leaves_the_first_table_in_place(loader, file, monkeypatch):
    from torch._inductor.virtualized import V

    file.write_text(exported())
    loader.install(file)
    before = V.choices
    monkeypatch.setitem(templates(), "triton::mm", SimpleNamespace(src_hash="0" * 64))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # whatever the import of torch has set
        with pytest.raises(UserWarning, match="another source"):
            loader.install(file)
    assert V.choices is before


@pytest.mark.parametrize("device", ["H200", "NVIDIA H100", ""])
def test_a_gpu_that_the_file_has_no_table_for_is_refused_with_those_it_has(loader, file, device):
    of_h200, named = replace(example_table(), ranges=()), f"device='{device}' has no table there: name NVIDIA H"
    file.write_text(exported())
    with pytest.raises(ValueError, match=f"{named}200"):
        loader.install(file, device=device)
    of_b200 = replace(of_h200, device=replace(of_h200.device, sku="B200", name="NVIDIA B200"))
    file.write_text(export_bundle(InductorExporter(), [of_h200, of_b200])["inductor_table.json"])
    with pytest.raises(ValueError, match="has no table there: name NVIDIA B200 or NVIDIA H200"):
        loader.install(file, device=device)
    assert chooser() == "InductorChoices"


@pytest.mark.parametrize("device", ["NVIDIA H200", None])
def test_another_gpu_that_torch_uses_already_is_warned_of_by_install(loader, file, monkeypatch, device):
    import torch

    file.write_text(exported())
    loader.install(file, device=device)
    assert str(loader.report()).endswith("; the table is for NVIDIA H200")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda of: SimpleNamespace(name="NVIDIA L4"))
    with pytest.warns(UserWarning, match="table is for NVIDIA H200; on NVIDIA L4 no row applies"):
        loader.install(file, device=device)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader.install(file, device=device, policy="ignore")
        with pytest.raises(UserWarning, match="on NVIDIA L4 no row applies"):
            loader.install(file, device=device)


def test_many_rows_of_one_product_need_no_quadratic_work(loader, file):
    rows = [entry(first=m, last=m) for m in range(1, 20_001)]
    file.write_text(with_rows(rows))
    started = time.process_time()
    loader.install(file)
    assert time.process_time() - started < 3, "quadratic work takes longer"


def test_a_file_with_another_digest_than_the_one_asked_for_is_refused(loader, file):
    file.write_text(text := exported())
    digest, other = hashlib.sha256(text.encode()).hexdigest(), "0" * 64
    for use in (loader.install, loader.sizes, lambda path, sha256: loader.warm_up(print, path, sha256=sha256)):
        for asked in (other, "", digest[:-1], b"x"):
            with pytest.raises(ValueError, match=f"sha256 {digest} is not {re.escape(repr(asked))}, which") as refused:
                use(file, sha256=asked)
            assert str(refused.value).startswith(f"{file}: ")
    assert chooser() == "InductorChoices"
    loader.install(file, sha256=digest.upper())
    assert chooser() == "TableChoices"
    file.write_text(text.replace("\n", "\r\n"))  # sealed alike, and not the reviewed bytes
    loader.install(file)
    with pytest.raises(ValueError, match="take the reviewed file"):
        loader.install(file, sha256=digest)


@pytest.mark.parametrize("facts", [None, [], {"problem": {"a": {}}}, {"loss": {"1": "2"}}, {"problem": "a\x1b[31m"}])
def test_facts_that_no_exporter_writes_are_refused_where_they_are_shown(loader, file, facts):
    text = with_rows([entry(facts=facts)])
    with pytest.raises((TypeError, ValueError), match="row 1: facts"):
        parse_written_table(text.encode())
    file.write_text(text)
    loader.install(file)  # which reads no facts


def test_a_config_that_is_none_of_its_space_is_refused_where_it_is_written():
    text = with_rows([entry(kwargs={**TILES, "GROUP_M": 2})])
    with pytest.raises(ValueError, match=r"row 1: kwargs\.GROUP_M=2 is not one of 4, 8, 16"):
        parse_written_table(text.encode())


def test_tiles_that_triton_cannot_compile_are_refused_whatever_params_says(loader, file):
    table = json.loads(exported())
    table["params"]["triton::mm"]["BLOCK_K"] = [48]
    table["rows"] = {KEY: [entry(kwargs={**TILES, "BLOCK_K": 48})]}
    refused(loader, file, sealed(table), ValueError, r"BLOCK_K=48 is not in \(1, 2, 4, ")


def test_parts_that_do_not_divide_k_are_refused_where_they_are_written():
    long = product_key(Problem.parse("32x32x65536:bf16:nn"))
    row = entry(first=32, last=32, template="decompose_k", kwargs={"k_split": 3}, fuses_cheap=False)
    with pytest.raises(ValueError, match="k_split=3 does not divide k=65536"):
        parse_written_table(with_rows([row], long).encode())


def test_another_handler_is_not_replaced(loader, file):
    from torch._inductor.choices import InductorChoices
    from torch._inductor.virtualized import V

    class Mine(InductorChoices):
        pass

    file.write_text(exported())
    with V.set_choices_handler(Mine()), pytest.raises(RuntimeError, match="Mine: remove it first"):
        loader.install(file)


def said(caught):
    return [str(w.message) for w in caught if "gemmtune" in str(w.message)]


def applying():
    """Return the templates of the rows that the installed handler may use."""
    from torch._inductor.virtualized import V

    installed: Any = V.choices
    return {row.template for rows in installed._rows.values() for row in rows}


def test_other_versions_with_the_same_template_source_are_used_without_a_warning(loader, file, monkeypatch, recwarn):
    source = source_hash("triton::mm", "2.14.1")
    monkeypatch.setattr("torch.__version__", "2.99.0+cu140")
    monkeypatch.setitem(templates(), "triton::mm", SimpleNamespace(src_hash=source))
    file.write_text(exported("torch 2.14.1+cu130, triton 3.8.0"))
    loader.install(file, policy="strict")
    assert (said(recwarn), applying()) == ([], {"triton::mm"})


@pytest.mark.parametrize("release", TORCH_VERSIONS)
def test_rows_of_each_torch_apply_where_the_installed_one_has_their_source(loader, file, recwarn, release):
    templates = {"triton::mm", "triton::bmm"}
    alike = {t for t in templates if source_hash(t, f"{release}.0") == source_hash(t, version("torch"))}
    file.write_text(exported(f"torch {release}.0", Problem.parse("6x64x96x200:bf16:nt:bmm")))
    warnings.simplefilter("always")
    loader.install(file, policy="strict")
    assert (applying(), len(said(recwarn))) == (alike, int(alike != templates))


def test_a_handler_that_is_registered_later_keeps_its_own_hooks(loader, file):
    from torch._inductor import choices
    from torch._inductor.virtualized import V

    if not hasattr(choices, "register_inductor_choices"):
        pytest.skip("this torch has no registry of handlers")

    class Naming(choices.InductorChoices):
        def customize_fused_kernel_name(self, fused_name, src_code):
            return f"mine_{fused_name}"

        def uuid(self):
            return "mine"

    def answers():
        bound: Any = V.choices.get_template_configs
        return bound.__self__, V.choices.customize_fused_kernel_name("x", "")

    file.write_text(exported())
    loader.install(file)
    try:
        choices.register_inductor_choices("mine", Naming)
        handler, name = answers()
        assert (type(handler).__name__, name) == ("TableChoices", "mine_x")
        loader.uninstall()
        assert (type(V.choices), answers()[1]) == (Naming, "mine_x")
    finally:
        vars(choices)["unregister_inductor_choices"]("mine")
    assert chooser() == "InductorChoices"


@pytest.mark.parametrize(("policy", "rows"), [("warn", {"triton::mm", "triton::bmm"}), ("strict", {"triton::bmm"})])
def test_another_source_of_a_template_warns_once_and_the_policy_decides(loader, file, monkeypatch, policy, rows):
    file.write_text(exported(None, Problem.parse("6x64x96x200:bf16:nt:bmm")))
    monkeypatch.setitem(templates(), "triton::mm", SimpleNamespace(src_hash="0" * 64))
    with pytest.warns(
        UserWarning, match=r"made with another source of triton::mm than torch .* has \(torch "
    ) as caught:
        loader.install(file, policy=policy)
    assert (len(caught), applying()) == (1, rows)


@pytest.mark.parametrize("toolchain", ["", "torch 9.8.0, triton 7.6.0"])
def test_a_template_whose_source_is_not_known_counts_as_changed(loader, file, toolchain):
    file.write_text(exported(toolchain))
    with pytest.warns(UserWarning, match="another source of triton::mm than torch .*: their rows do not apply"):
        loader.install(file, policy="strict")
    assert applying() == set()


def test_rows_of_two_torches_with_different_sources_count_as_changed(loader, file):
    record = json.loads(exported())
    record["templates"]["triton::mm"].append("0" * 64)
    file.write_text(sealed(record))
    with pytest.warns(UserWarning, match="another source of triton::mm"):
        loader.install(file)


def test_the_policy_ignore_does_not_warn_of_another_source(loader, file, recwarn):
    file.write_text(exported("torch 9.8.0, triton 7.6.0"))
    loader.install(file, policy="ignore")
    assert (said(recwarn), applying()) == ([], {"triton::mm"})


def test_the_template_sources_of_the_installed_torch_are_known(loader, file, recwarn):
    file.write_text(exported())
    assert json.loads(file.read_text())["templates"].keys() == {"triton::mm"}
    loader.install(file)
    assert said(recwarn) == []


@pytest.mark.parametrize(
    ("owner", "name", "instead", "missing"),
    [
        ("choices.InductorChoices", "get_template_configs", lambda self, request: [], "get_template_configs with the"),
        (
            "choices.InductorChoices",
            "can_fuse",
            lambda pair: True,
            "InductorChoices.can_fuse with the known",
        ),
        ("choices.InductorChoices", "get_ktc", None, "InductorChoices.get_ktc"),
        ("codegen.simd.SIMDKernel", "estimate_kernel_num_bytes", None, "codegen_kernel and estimate_kernel_num_bytes"),
        (
            "virtualized",
            "_choices",
            SimpleNamespace(_get_handler=lambda: 0),
            "virtualized._choices with _key and _default",
        ),
        ("select_algorithm.ExternKernelChoice", "__init__", lambda self: None, "place for a table, TypeError"),
    ],
)
def test_a_torch_that_the_loader_does_not_know_compiles_as_without_a_table(
    loader, file, monkeypatch, owner, name, instead, missing
):
    file.write_text(exported() if "Extern" not in owner else with_kernel())
    place = pkgutil.resolve_name(f"torch._inductor.{owner}")
    before = loader.options()
    if instead is None:
        monkeypatch.delattr(place, name)
    else:
        monkeypatch.setattr(place, name, instead)
    with pytest.raises(RuntimeError, match=rf"torch .* has no .*{missing}.*: export the table with a newer gemmtune"):
        loader.install(file, policy="raise")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loader.install(file)
        loader.install(file)
    (message,) = said(caught)
    assert message.endswith("; this process compiles as without a table")
    assert (missing in message, loader.options()) == (True, {})
    assert missing in str(loader.report())
    assert missing in loader.report().to_dict()["unused"]
    if "place" not in missing:
        with pytest.raises(RuntimeError, match=missing):
            loader.record(file.with_name("problems.jsonl"))
    loader.stop_recording()
    loader.uninstall()
    monkeypatch.undo()
    assert chooser() == "InductorChoices"
    loader.install(file)
    assert (chooser(), loader.options(), loader.report().unused) == ("TableChoices", before, "")


def with_kernel():
    """Return a table with a binary, which is no program: it is registered and not linked."""
    record = json.loads(exported())
    name = kernel_name("cute_splitk", b"none", ["a"], "nt", [])
    fields = {"object": packed(b"none"), "call": ["a"], "layouts": "nt", "epilogue": []}
    packages = dict.fromkeys(RUNTIME_PACKAGES, "1.0")
    return sealed({**record, "kernels": {name: {**fields, "packages": packages}}})


@pytest.mark.slow(8)
def test_the_report_says_that_products_were_compiled_for_the_cpu(loader, file):
    import torch
    from torch._inductor import config

    def model(x, w):
        return (x @ w) @ w

    file.write_text(exported())
    loader.install(file)
    torch.compiler.reset()
    with config.patch(force_disable_caches=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own
        torch.compile(model, options=loader.options())(*(torch.ones(64, 64, dtype=torch.bfloat16) for _ in range(2)))
    assert str(loader.report()).splitlines() == [
        "2 products were compiled for the CPU; the table is for NVIDIA H200",
        "  mm: other device, on the CPU (2 times)",
    ]
    assert loader.report().to_dict()["other_device"] == 2


@pytest.mark.parametrize("binaries", ["False", "no", 0, None])
def test_a_value_of_binaries_that_is_no_bool_is_refused(loader, file, binaries):
    file.write_text(exported())
    with pytest.raises(ValueError, match=r"binaries=.* is not in \(True, False\)"):
        loader.install(file, binaries=binaries)


def test_the_policy_raise_raises_what_install_would_warn_of(loader, file, monkeypatch):
    file.write_text(exported())
    loader.install(file, policy="raise")
    assert chooser() == "TableChoices"
    loader.uninstall()
    monkeypatch.setitem(templates(), "triton::mm", SimpleNamespace(src_hash="0" * 64))
    with pytest.raises(RuntimeError, match=r"made with another source of triton::mm than torch .* has"):
        loader.install(file, policy="raise")
    assert chooser() == "InductorChoices"


def test_a_setting_that_is_gone_is_left_out_with_a_warning(loader, monkeypatch):
    monkeypatch.setitem(loader._OPTIONS, "shape_margins", False)
    with pytest.warns(UserWarning, match=r"torch .* has no setting shape_margins"):
        assert loader.options() == OPTIONS


@pytest.mark.parametrize(("asked", "message"), [({"policy": "lax"}, "policy='lax'"), ({"miss": "best"}, "miss='best'")])
def test_an_unknown_policy_is_refused(loader, file, asked, message):
    file.write_text(exported())
    with pytest.raises(ValueError, match=f"{message} is not in "):
        loader.install(file, **asked)
    assert chooser() == "InductorChoices"


def test_options_allow_triton_rows_and_keep_k(loader):
    assert loader.options() == OPTIONS


def test_an_exported_loader_of_one_file_needs_no_gemmtune_and_has_what_it_needs_once():
    text = CuteExporter().export(example_table(CuteExporter))["gemmtune_cute_table.py"]
    assert "gemmtune.engine" not in text
    tree = ast.parse(text)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) and node in tree.body]
    imported = [(getattr(node, "module", ""), each.name) for node in imports for each in node.names]
    assert sorted(set(imported)) == sorted(imported)
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    public = next(
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    assert functions <= used | {*ast.literal_eval(public)}
    defined = []
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
        named = [each for target in targets for each in getattr(target, "elts", [target])]
        defined += [getattr(target, "id", getattr(target, "name", None)) for target in named]
    names = [each for each in defined if each]
    assert sorted(set(names)) == sorted(names)
    assert {"read_sealed", "require_config", "__all__"} < set(names)


def test_the_cache_key_is_the_same_whatever_was_installed_before(loader, file):
    from torch._inductor.codecache import FxGraphHashDetails

    def key():
        details = FxGraphHashDetails(None, [], {}, [])
        return *details.custom_backend_passes, str(details.inductor_config.get("inductor_choices_class"))

    file.write_text(exported())
    before = key()
    loader.install(file)
    first = key()
    loader.install(file)
    assert key() == first
    assert [part for part in first if "gemmtune-table:" in str(part)]
    loader.uninstall()
    assert key() == before


def test_the_cache_key_tells_a_table_that_links_nothing_or_tunes(loader, file):
    from torch._inductor.codecache import FxGraphHashDetails

    def key():
        details = FxGraphHashDetails(None, [], {}, [])
        return *map(str, details.custom_backend_passes), str(details.inductor_config.get("inductor_choices_class"))

    file.write_text(with_kernel())
    keys = [key()]
    for asked in ({}, {"binaries": False}, {"miss": "autotune"}, {"policy": "ignore"}):
        loader.install(file, **asked)
        keys.append(key())
    assert len(set(keys)) == 5


def test_the_sizes_to_warm_up_are_those_of_the_rows_and_one_beyond(loader, file):
    file.write_text(exported())
    assert loader.sizes(file) == (64, 256, 257)


def test_a_model_is_warmed_up_at_every_size_and_the_cached_artifacts_are_returned(loader, file, monkeypatch):
    import torch

    file.write_text(exported())
    asked = []
    monkeypatch.setattr(torch.compiler, "save_cache_artifacts", lambda: (b"compiled", None))
    assert loader.warm_up(asked.append, file) == b"compiled"
    assert asked == [64, 256, 257]


def test_a_size_that_the_model_refuses_is_skipped_with_a_warning(loader, file, monkeypatch):
    import torch

    def model(m):
        asked.append(m)
        if m > 256:
            raise RuntimeError("the size of tensor a (257) must match\nthe size of tensor b (256)")

    file.write_text(exported())
    asked = []
    monkeypatch.setattr(torch.compiler, "save_cache_artifacts", lambda: (b"compiled", None))
    with pytest.warns(
        UserWarning, match=r"does not run at m = 257, .*: RuntimeError: the size of tensor a \(257\)"
    ) as caught:
        assert loader.warm_up(model, file) == b"compiled"
    assert asked == [64, 256, 257]
    assert len(caught) == 1


def test_a_model_that_fails_at_the_first_size_raises_its_error(loader, file):
    def model(m):
        raise RuntimeError(f"no input of {m}")

    file.write_text(exported())
    with pytest.raises(RuntimeError, match="no input of 64"):
        loader.warm_up(model, file)


def test_a_model_that_caches_nothing_is_refused(loader, file, monkeypatch):
    import torch

    file.write_text(exported())
    monkeypatch.setattr(torch.compiler, "save_cache_artifacts", lambda: None)
    with pytest.raises(RuntimeError, match="nothing was compiled that torch caches"):
        loader.warm_up(lambda m: None, file)


def test_a_recording_takes_the_place_of_no_other_handler(loader, tmp_path):
    from torch._inductor.choices import InductorChoices
    from torch._inductor.virtualized import V

    class Foreign(InductorChoices):
        pass

    with V.set_choices_handler(Foreign()):
        with pytest.raises(RuntimeError, match="Foreign: remove it first"):
            loader.record(tmp_path / "problems.jsonl")
        assert chooser() == "Foreign"
    assert not (tmp_path / "problems.jsonl").exists()
