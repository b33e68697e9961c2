"""Hostile tuned files, wheels, recordings, kernels and tables of every kind: an answer, or one line."""

from __future__ import annotations

import json
import zipfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gemmtune.engine.consumers.inductor.capture.recorded import read_recorded
from gemmtune.engine.consumers.inductor.inputs import parse_inputs
from gemmtune.engine.consumers.serving.audit import audit
from gemmtune.engine.records.errors import GemmtuneError, TableError, UsageError
from gemmtune.engine.report.tables import table_report
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.kinds import expand_workloads, parse_workload
from gemmtune.engine.tables.export import export_table
from gemmtune.engine.tables.table_file import parse_table, table_text
from gemmtune.engine.testing.exporter_conformance import example_table

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
NAME = "E=8,N=14336,device_name=NVIDIA_H200.json"
CONFIG = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "num_warps": 4}
VALUES = st.sampled_from(
    [None, True, 0, -1, 3, 1.5, 10**30, 2**63, 1e308, "", "x", "²", "\x1b[31m", "x" * 400, [], {}, [1]]
)
DIGITS = "9" * 5000
TUNABLE = "GemmTunableOp_BFloat16_TN,tn_4096_16_4096_ld_4096_4096_4096\n"
PRODUCT = {"type": "product", "process": "1", "graph": 1, "problem": "16x64x64:bf16:nt", "epilogue": "relu"}
RUNS = {"type": "runs", "process": "1", "graph": 1, "runs": 7}


def is_answer_or_line(use):
    """Return whether a use ends, and gives a reason if it refuses; other errors are raised."""
    try:
        use()
    except GemmtuneError as error:
        return bool(str(error))
    return True


def wheel(folder, content='{"1": {"num_warps": 4}}', name=NAME):
    path = folder / "w-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
        archive.writestr("w-1.dist-info/METADATA", "Name: w\nRequires-Dist: triton==3.8.0\n")
    return path


@QUICK
@given(st.dictionaries(st.sampled_from(["1", "64", "²", "-1", DIGITS, "triton_version", ""]), VALUES, max_size=3))
def test_any_tuned_file_is_audited(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("tuned")
    (folder / NAME).write_text(json.dumps(content | {"16": CONFIG | {"num_stages": content.get("1")}}))
    assert is_answer_or_line(lambda: audit(str(folder)))


@QUICK
@given(st.integers(0, 10**6), st.integers(0, 7))
def test_a_wheel_with_any_flipped_bit_is_audited_or_refused(tmp_path_factory, place, bit):
    path = wheel(tmp_path_factory.mktemp("wheel"))
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= 1 << bit
    path.write_bytes(content)
    assert is_answer_or_line(lambda: audit(str(path)))


def test_a_file_that_unpacks_to_too_much_is_refused(tmp_path):
    path = wheel(tmp_path, bytes(2**24 + 1))
    with pytest.raises(UsageError, match="holds more than 16777216 bytes"):
        audit(str(path))


def test_a_size_of_thousands_of_digits_in_a_wheel_is_no_tuned_file(tmp_path):
    path = wheel(tmp_path, name=f"E={DIGITS},N=1,device_name=NVIDIA_H200.json")
    with pytest.raises(UsageError, match="has no tuned file"):
        audit(str(path))


def test_something_else_under_a_wheels_name_is_refused(tmp_path):
    path = tmp_path / "w.whl"
    path.write_bytes(b"PK\x05\x06 no wheel")
    with pytest.raises(UsageError, match="is no whole wheel"):
        audit(str(path))


@QUICK
@given(st.sampled_from([*PRODUCT, *RUNS, "first", "m"]), VALUES | st.sampled_from([DIGITS, "16x64x64:bf16:nt:bmm"]))
def test_any_recording_is_read_or_refused(tmp_path_factory, field, value):
    path = tmp_path_factory.mktemp("record") / "problems.jsonl"
    path.write_text("".join(json.dumps(line | {field: value}) + "\n" for line in (PRODUCT, RUNS)))
    assert is_answer_or_line(lambda: read_recorded(path).to_toml())


@QUICK
@given(st.integers(0, len(TUNABLE)), st.text(max_size=5) | st.sampled_from([DIGITS, "_", ",", "-1", "²"]))
def test_any_file_of_tunable_op_is_read_or_refused(tmp_path_factory, place, text):
    path = tmp_path_factory.mktemp("record") / "tunableop_untuned0.csv"
    path.write_text(TUNABLE[:place] + text + TUNABLE[place:], encoding="utf-8")
    assert is_answer_or_line(lambda: read_recorded(path).to_toml())


LAYERS = ["vllm_moe:m4:e4:k2:h128:n128:bf16:counts=1.2.3.4", "sglang_moe:m1:e8:k2:h4096:n1792:bf16:zipf=1.2"]
TEXTS = [
    *LAYERS,
    "triton:K@0123456789ab:M=1,N=2:scalars=n=1;nearest=M;operations=7",
    "16x64x64:bf16:nt:epilogue=silu.mul(matrix).add(row)",
]


@QUICK
@given(
    st.sampled_from(TEXTS), st.integers(0, 80), st.sampled_from([DIGITS, "²", "٣", "\0", "(", "((", "1e999", "=", "."])
)
def test_any_text_of_a_workload_is_one_that_reads_back_or_is_refused(text, place, hostile):
    try:
        found = expand_workloads(text[:place] + hostile + text[place:])
    except GemmtuneError:
        return
    assert all(parse_workload(each.name) == each for each in found if each.kind != "triton")


@pytest.mark.parametrize("text", [f"bf16[{DIGITS}]", f"int64[4]%{DIGITS}", f"bf16[M:1..{DIGITS}]", "bf16[²]"])
def test_an_input_of_a_model_with_a_hostile_size_is_refused(text):
    with pytest.raises(UsageError, match="input"):
        parse_inputs([text])


KERNEL = """
import triton
import triton.language as tl

@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    tl.store(y, tl.load(x))

class K:
    kernel = kernel
    params = {"BLOCK": [1, 2]}
    cases = {"a": {"n": 64}}
    outputs = ["y"]
    grid = lambda self, case, meta: (1,)
    reference = lambda self, case, arguments: arguments["x"]
    def arguments(self, case, make):
        return {"x": make.normal((case["n"],)), "y": make.empty((case["n"],)), "n": case["n"]}
"""


@pytest.mark.parametrize(
    "line",
    [
        *("params = 5", "params = {'BLOCK': 5}", "cases = {'a': {'n': 1, 'weight': 'x'}}", "outputs = [[1]]"),
        *("default = 5", "default = {'BLOCK': []}", "arguments = print", "flops = lambda self, case: 10**5000"),
    ],
)
def test_a_class_that_describes_no_kernel_is_refused(tmp_path, line):
    pytest.importorskip("triton", reason="own kernels are written in Triton")
    file = tmp_path / "k.py"
    file.write_text(f"{KERNEL}    {line}\n")
    with pytest.raises(UsageError, match=r"K of k\.py"):
        expand_workloads(f"triton:{file}:K")


KINDS = ("vllm", "triton", "inductor", "cute")
TABLES = {name: json.loads(table_text(example_table(registry.exporter(name)))) for name in KINDS}


@pytest.mark.parametrize(
    ("field", "value"), [("toolchain", "x"), ("arch", "x"), ("arch", "sm_9"), ("toolchain", "a b, c")]
)
def test_a_toolchain_and_an_architecture_are_checked_when_a_table_is_read(field, value):
    record = json.loads(json.dumps(TABLES["inductor"]))
    (record["device"] if field == "arch" else record["rows"][0]["choices"][0])[field] = value
    with pytest.raises(TableError, match=field if field == "toolchain" else "architecture"):
        parse_table(sealed(record), "t.json")


def sealed(record):
    """Return the file of a table that somebody edited and signed again."""
    from gemmtune.engine.tables import table_file

    bare = {name: value for name, value in record.items() if name != "sha256"}
    return json.dumps(bare | {"sha256": table_file._hash(bare)})


@settings(QUICK, max_examples=150)
@given(st.data())
def test_any_table_of_any_kind_is_shown_and_exported_or_refused(data):
    name = data.draw(st.sampled_from(KINDS))
    record = json.loads(json.dumps(TABLES[name]))
    place = record
    while True:
        keys = sorted(place) if isinstance(place, dict) else range(len(place))
        key = data.draw(st.sampled_from(list(keys)))
        inside = place[key]
        if not isinstance(inside, dict | list) or not inside or data.draw(st.integers(0, 9)) == 0:
            break
        place = inside
    place[key] = data.draw(VALUES)
    try:
        table = parse_table(sealed(record), "t.json")
    except TableError:
        return
    assert is_answer_or_line(lambda: table_report(table).to_text())
    assert is_answer_or_line(lambda: export_table(registry.exporter(name), table, estimated=True))
