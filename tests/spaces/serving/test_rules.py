import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.kinds import parse_workload


@pytest.mark.parametrize(
    ("problem", "device", "columns", "offered"),
    [
        ("vllm_moe:m4:e256:k8:h7168:n256:fp8_block", "H200", 64, True),
        ("sglang_moe:m4:e8:k2:h4096:n1792:fp8_tensor", "H200", 256, True),
        ("vllm_moe:m4:e256:k8:h7168:n256:fp8_block", "H200", 32, False),  # too narrow to swap
        ("vllm_moe:m4:e256:k8:h7168:n256:bf16", "H200", 64, False),
        ("vllm_moe:m4:e256:k8:h7168:n256:fp8_block", "L40S", 64, False),
        ("vllm_block_fp8:m4:n4096:k7168", "H200", 64, False),
    ],
)
def test_tiles_of_8_rows_are_offered_where_the_kernel_swaps_operands(problem, device, columns, offered):
    work = parse_workload(problem)
    task, space = Task(work, catalogue.device(device), work.kind), registry.space(work.kind)
    tile = {"BLOCK_SIZE_M": 8, "BLOCK_SIZE_N": columns, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1}
    config = Config({**tile, "num_warps": 4, "num_stages": 2})
    assert 8 in {param.name: param.values for param in space.params(task)}["BLOCK_SIZE_M"]
    verdict = space.check(task, config)
    assert bool(verdict) is offered
    assert offered or verdict.reason.startswith("BLOCK_SIZE_M 8 < 16")
