import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.kinds import parse_workload
from gemmtune.engine.search.enumeration import membership


@pytest.mark.parametrize(
    ("problem", "device", "offered"),
    [
        ("vllm_moe:m4:e256:k8:h7168:n256:fp8_block", "H200", True),
        ("sglang_moe:m4:e8:k2:h4096:n1792:fp8_tensor", "H200", True),
        ("vllm_moe:m4:e256:k8:h7168:n256:bf16", "H200", False),
        ("vllm_moe:m4:e256:k8:h7168:n256:fp8_block", "L40S", False),
    ],
)
@pytest.mark.parametrize("columns", [32, 64])
def test_tiles_of_8_rows_are_offered_in_fp8_on_hopper(problem, device, offered, columns):
    work = parse_workload(problem)
    task = Task(work, catalogue.device(device), work.kind)
    tile = {"BLOCK_SIZE_M": 8, "BLOCK_SIZE_N": columns, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1}
    verdict = membership(registry.space(work.kind), task)(Config({**tile, "num_warps": 4, "num_stages": 2}))
    assert bool(verdict) is offered
    assert offered or verdict.reason == f"BLOCK_SIZE_M=8 is not a value of {work.kind}"
