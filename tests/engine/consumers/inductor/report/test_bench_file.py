"""A bench's file reads back, also one of an older version; one that no bench wrote is refused by its path."""

from __future__ import annotations

import json
import math

import pytest

from gemmtune.engine.consumers.inductor.bench.model_bench import ArmTimes, ModelBench, ProductGain
from gemmtune.engine.consumers.inductor.report.bench_file import read_bench, read_benches, write_bench
from gemmtune.engine.records.errors import UsageError

ARMS = (ArmTimes("eager", (2e6, 2.1e6)), ArmTimes("table", error=math.inf, failure="E: wrong"))
GAIN = ProductGain("16x64x64:bf16:nt", 4, "row", "triton::mm", 3000.0, None)
BENCH = ModelBench("m:f", ("bf16[2,2]",), False, "NVIDIA H200", "2.13.0", True, ARMS, (GAIN,))


def test_a_bench_is_read_back(tmp_path):
    write_bench(BENCH, tmp_path / "bench.json")
    assert read_benches(tmp_path) == (BENCH,)


def test_a_bench_without_what_came_later_is_read(tmp_path):
    write_bench(BENCH, tmp_path / "bench.json")
    record = json.loads((tmp_path / "bench.json").read_text())
    del record["products"], record["arms"][0]["shared_kernels"]
    (tmp_path / "bench.json").write_text(json.dumps(record))
    assert read_bench(tmp_path / "bench.json").arms == ARMS


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"call": ...}, "it lacks the field 'call'"),
        ({"grad": 1}, "grad=1 is not true or false"),
        ({"arms": [{"arm": "eager", "samples_ns": [1.0, "2"]}]}, r"arms\[0\]\.samples_ns\[1\]='2' is not a number"),
        ({"products": {}}, r"products={} is not a list"),
    ],
)
def test_a_file_that_no_bench_wrote_is_refused(tmp_path, change, said):
    path = tmp_path / "bench.json"
    write_bench(BENCH, path)
    record = json.loads(path.read_text()) | change
    path.write_text(json.dumps({name: value for name, value in record.items() if value is not ...}))
    with pytest.raises(UsageError, match=rf"bench\.json is no result of gemmtune bench: {said}.*; measure again"):
        read_bench(path)
