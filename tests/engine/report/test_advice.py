"""Advice on attention that another function of torch computes faster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.flex.attention import Flex
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, Row
from gemmtune.engine.records.task import Task
from gemmtune.engine.report.tables import table_report
from gemmtune.engine.seams import registry
from gemmtune.engine.testing.exporter_conformance import example_table

CAUSAL = "flex:forward:b2:h32:kvh8:s4096:d128:bf16:mask=causal"


def row(**times):
    choices = [
        Choice(space, Config({}), time, time - 1, time + 1, 32, Evidence.MEASURED, "torch 2.13.0", "events-cold-l2")
        for space, time in times.items()
    ]
    baseline = next(each for each in choices if each.space == "flex_default")
    return Row(Flex.parse(CAUSAL), tuple(sorted(choices, key=lambda each: each.time_ns)), baseline, 0.0, ())


def test_a_report_says_what_to_call_where_that_is_the_fastest():
    faster, slower = row(flex_default=150.0, flex_attention=120.0, sdpa=80.0), row(flex_default=150.0, sdpa=160.0)
    call = "scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)"
    said = str(table_report(replace(example_table(), rows=(faster,), ranges=())))
    assert f"{CAUSAL.replace('s4096', 'q4096:kv4096')}: call {call}" in said
    assert "1.50 times as fast as flex_attention" in said
    assert call not in str(table_report(replace(example_table(), rows=(slower,), ranges=())))


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        (CAUSAL, ""),
        (CAUSAL.replace("forward", "backward"), "phase"),
        (CAUSAL.replace("causal", "window(64)"), "mask"),
        (CAUSAL.replace("s4096", "q4096:kv8192"), "mask"),
        (f"{CAUSAL}:score=softcap(50)", "score"),
        (f"{CAUSAL}:dynamic=s", "dynamic"),
        ("flex:decode:b8:h32:q1:kv4096:d128:bf16", ""),
    ],
)
def test_torchs_attention_is_timed_where_it_has_mask_and_score(name, rule):
    problem = Flex.parse(name)
    assert registry.space("sdpa").check(Task(problem, catalogue.device("H200"), "sdpa"), Config({})).rule == rule
