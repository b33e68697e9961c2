"""`gemmtune list spaces NAME --problem P`."""

from __future__ import annotations

import re

DECODE = "16x4096x4096:bf16:nt"


def test_space_counts_every_point_once(run):
    record = run("list", "spaces", "triton_mm", "--problem", DECODE, "--device", "h200", "--json").record
    assert (record["space"], record["problem"], record["device"]) == ("triton_mm", DECODE, "H200")
    points = 1
    for values in record["params"].values():
        points *= len(values)
    assert record["points"] == points == record["feasible"] + sum(record["rejections"].values())
    assert record["params"]["BLOCK_M"] == [16, 32, 64, 128, 256]
    assert record["examples"].keys() == record["rejections"].keys()
    assert record["examples"]["BLOCK_M beyond the problem"] == "BLOCK_M 32 > 16, the padded m of 16"
    assert record["seeds"]
    assert all(seed.keys() == record["params"].keys() for seed in record["seeds"])


def test_space_for_a_person_says_the_same(run):
    ran = run("list", "spaces", "triton_mm", "--problem", DECODE)
    assert ran.status == 0
    record = run("list", "spaces", "triton_mm", "--problem", DECODE, "--json").record
    assert f"{record['points']} points, {record['feasible']} feasible, {len(record['seeds'])} seeds" in ran.out
    for name, values in record["params"].items():
        assert re.search(rf"^{name} +{' '.join(map(str, values))}$", ran.out, re.MULTILINE)
    for rule, count in record["rejections"].items():
        assert re.search(rf"^{rule} +{count}  {re.escape(record['examples'][rule])}$", ran.out, re.MULTILINE)


def test_space_says_what_a_model_expects_or_why_there_is_none(run, toy_priced):
    described = ("list", "spaces", "toy_priced", "--problem", DECODE)
    assert "10 points, 9 feasible, 1 seed\n8 estimated by toy model 1.0\n" in run(*described).out
    record = run(*described, "--device", "L4", "--json").record
    assert (record["estimated"], record["model"]) == (0, "")
    assert record["without_estimates"] == "the toy model does not know the NVIDIA L4"


def test_space_takes_a_workload_of_its_kind_alone(run):
    layer = "vllm_block_fp8:m16:n4096:k7168"
    assert run("list", "spaces", "vllm_block_fp8", "--problem", layer, "--json").record["problem"] == layer
    ran = run("list", "spaces", "triton_mm", "--problem", layer)
    assert ran.status == 2
    assert (
        "space triton_mm takes GEMMs (MxNxK), and vllm_block_fp8:m16:n4096:k7168 is of kind vllm_block_fp8" in ran.err
    )
