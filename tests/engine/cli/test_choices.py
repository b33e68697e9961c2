from gemmtune.engine.cli.choices import Kind, names
from gemmtune.engine.consumers.serving.contract.block_linear import SglangBlockFp8, VllmBlockFp8
from gemmtune.engine.consumers.serving.contract.moe_layer import SglangMoe, VllmMoe
from gemmtune.engine.consumers.serving.contract.wna16_layer import SglangWna16, VllmWna16
from gemmtune.engine.records.flex.attention import Flex
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.grouped.product import Grouped
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.space import Space
from gemmtune.spaces.triton.kind import KernelCase


def test_the_spaces_to_choose_from_are_all_but_the_baselines():
    serving = (VllmMoe, SglangMoe, VllmWna16, SglangWna16, VllmBlockFp8, SglangBlockFp8)
    workloads = (Problem, Grouped, Flex, KernelCase, *serving)
    baselines = {each.baseline_space for each in workloads}
    assert set(names(Kind.SPACES)) == set(registry.names(Space)) - baselines
    assert {"triton_mm", "triton_kernel", "vllm_moe"} <= set(names(Kind.SPACES))
