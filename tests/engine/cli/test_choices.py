from gemmtune.engine.cli.choices import Kind, names
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.serving.block_linear import SglangBlockFp8, VllmBlockFp8
from gemmtune.engine.records.serving.moe_layer import SglangMoe, VllmMoe
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.space import Space
from gemmtune.spaces.workloads.triton_kernel import KernelCase


def test_the_spaces_to_choose_from_are_all_but_the_baselines():
    workloads = (Problem, KernelCase, VllmMoe, SglangMoe, VllmBlockFp8, SglangBlockFp8)
    baselines = {each.baseline_space for each in workloads}
    assert set(names(Kind.SPACES)) == set(registry.names(Space)) - baselines
    assert {"triton_mm", "triton_kernel", "vllm_moe"} <= set(names(Kind.SPACES))
