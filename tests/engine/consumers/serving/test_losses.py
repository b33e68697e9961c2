from __future__ import annotations

import json

import pytest

from gemmtune.engine.consumers.serving.audit import audit
from gemmtune.engine.consumers.serving.losses import entry_losses, with_losses
from gemmtune.engine.consumers.serving.rules import Rule
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, Row, Table
from gemmtune.engine.seams.kinds import parse_workload

NAME = "E=8,N=1792,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"


def config(block_m, block_k=128):
    tile = {"BLOCK_SIZE_M": block_m, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": block_k, "GROUP_SIZE_M": 1}
    return {**tile, "num_warps": 4, "num_stages": 3}


def choice(space, of, time_ns):
    ends = (time_ns, time_ns - 1, time_ns + 1)
    return Choice(space, Config(of), *ends, 32, Evidence.MEASURED, "triton 3.8.0", "graph-cold-l2")


def row(tokens, deployed, time_ns, size="e8:k2:h4096:n1792"):
    ours, now = choice("vllm_moe", config(16), 100.0), choice("vllm_moe_shipped", deployed, time_ns)
    work = parse_workload(f"vllm_moe:m{tokens}:{size}:fp8_block")
    return Row(work, (ours, now), now, time_ns / 100 - 1, (ours.config,))


@pytest.fixture
def files(tmp_path):
    tokens = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
    entries = {str(each): config(64, 256 if each == 64 else 128) for each in tokens}
    (tmp_path / NAME).write_text(json.dumps({"triton_version": "3.8.0", **entries}))
    return audit(str(tmp_path))


def test_an_entry_loses_what_its_config_was_measured_to_lose(files):
    rows = (
        row(1, config(64), 130.0),
        row(3, config(64), 101.0),
        row(64, config(64), 110.0),
        row(16, config(32), 140.0),
    )
    table = Table(catalogue.device("H200"), rows, "latency")
    losses = entry_losses(files, table)
    assert [(each.tokens, each.loss) for each in losses] == [
        (1, pytest.approx(0.30)),
        (3, pytest.approx(0.01)),
        (64, pytest.approx(0.10)),  # the entry's tile is clamped to what was measured
        (16, None),  # the table was measured with another entry
    ]
    stale = [each for each in with_losses(files, losses, 0.02).findings if each.rule is Rule.STALE]
    assert [each.tokens for each in stale] == [(1, 64)]
    assert "2 of 3 measured entries" in stale[0].found


def test_a_table_of_other_layers_is_refused(files):
    table = Table(catalogue.device("H200"), (row(1, config(64), 130.0, "e4:k2:h4096:n1792"),), "latency")
    with pytest.raises(TableError, match="no row of the table is of a layer with a file"):
        entry_losses(files, table)
