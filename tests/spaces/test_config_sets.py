"""Configs of each space for problems and devices: those that databases and landscapes hold, in their order.

A change of these numbers is a change of what a campaign searches: configs that were recorded may be none any more.
"""

from __future__ import annotations

from zlib import crc32

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.kinds import parse_workload
from gemmtune.engine.search.enumeration import enumerate_space

CASES = [
    (
        "triton_mm",
        "16x4096x4096:bf16:nt",
        "H200",
        12000,
        348,
        [1196158355, 2890422411, 89215923, 3212562731, 2012010759],
    ),
    (
        "triton_mm",
        "2048x4096x4096:fp16:nn:addmm:bias=vector",
        "B200",
        12000,
        5296,
        [4054004562, 2841185117, 3109798820, 2922025689, 707663415],
    ),
    (
        "triton_mm",
        "64x128x32:bf16:nt:dynamic_m=true",
        "RTX-4090",
        12000,
        729,
        [3957539439, 209466665, 3136571785, 433350250, 4057436819],
    ),
    ("cute_gemm", "16x4096x4096:bf16:nt", "H200", 48, 28, [1584232335, 3199580063, 2370361128, 2118512574, 2481188960]),
    (
        "cute_gemm",
        "512x4096x1024:fp16:tn",
        "B200",
        27000,
        892,
        [2055079339, 2580129608, 245737936, 3418894404, 1184950149],
    ),
    ("cute_gemm", "512x4096x1024:fp16:tn", "A100-80GB", 4, 4, [1219669917, 0, 2369992664, 3888894909, 3022380523]),
    ("cute_gemm", "256x1024x1024:e4m3:nt", "H200", 48, 24, [613633239, 3903143114, 1090311185, 1577912278, 3440530930]),
    (
        "cute_gemv",
        "1x4096x4096:bf16:nt",
        "H200",
        4608,
        2064,
        [1019232816, 2444573771, 4217310180, 3259616361, 2820075129],
    ),
    (
        "cute_gemv",
        "16x4096x4096:fp16:nt:addmm:bias=vector",
        "B200",
        4608,
        702,
        [4224340580, 3987559068, 1097042922, 1651836633, 2740711321],
    ),
    (
        "cute_splitk",
        "1x4096x4096:bf16:nt",
        "B200",
        5184,
        1744,
        [1704305020, 2690793774, 1327851214, 2013370580, 4136274485],
    ),
    (
        "cute_splitk",
        "64x4096x1000:fp16:nt:addmm:bias=matrix",
        "H200",
        5184,
        1296,
        [1121707203, 939094300, 868560426, 3355039306, 1659425589],
    ),
    (
        "quack_gemm",
        "16x4096x4096:bf16:nt",
        "B200",
        3840,
        420,
        [3843565544, 108286250, 3551858378, 1989774570, 1419128662],
    ),
    (
        "quack_gemm",
        "2048x4096x4096:fp16:nn:addmm:bias=vector",
        "H200",
        3840,
        1006,
        [3183225510, 2595362620, 663891625, 1380807685, 3169609852],
    ),
    (
        "quack_gemm",
        "256x512x512:bf16:nt:epilogue=relu",
        "H200",
        3840,
        478,
        [2192188160, 1596987692, 3106261818, 4258885639, 1319204468],
    ),
    (
        "sglang_block_fp8",
        "sglang_block_fp8:m16:n512:k512",
        "H200",
        15360,
        1792,
        [1437561829, 640152962, 0, 1203327142, 2279689818],
    ),
    (
        "sglang_block_fp8",
        "sglang_block_fp8:m16:n512:k512",
        "RTX-4090",
        1920,
        240,
        [2763037102, 3470077217, 0, 1906929879, 3591183847],
    ),
    (
        "vllm_block_fp8",
        "vllm_block_fp8:m300:n500:k256",
        "H200",
        1920,
        1144,
        [1636560959, 817150484, 0, 2218037827, 495789670],
    ),
    (
        "sglang_moe",
        "sglang_moe:m16:e8:k2:h512:n256:bf16",
        "RTX-4090",
        1920,
        256,
        [3180261531, 1195390805, 0, 199842755, 2351813483],
    ),
    (
        "sglang_moe",
        "sglang_moe:m512:e8:k2:h512:n256:fp8_tensor",
        "H200",
        2304,
        1936,
        [2493518142, 1994119594, 0, 1431292396, 2155642570],
    ),
    (
        "vllm_moe",
        "vllm_moe:m16:e8:k2:h512:n256:fp8_block",
        "H200",
        2304,
        512,
        [656766757, 4131806297, 0, 906420013, 3869146211],
    ),
    (
        "vllm_moe",
        "vllm_moe:m1024:e64:k4:h512:n256:bf16:zipf=1.2",
        "B200",
        1920,
        1256,
        [3293444190, 1152331817, 0, 3419375953, 2076039675],
    ),
]
"""Space, problem, device; number of points and of configs; their checksum, that of rejections, of seeds, of features
and of binaries."""


def checksum(texts):
    return crc32("\n".join(texts).encode())


@pytest.mark.parametrize(("space", "problem", "device", "points", "configs", "sums"), CASES)
def test_a_space_has_the_configs_that_it_had(space, problem, device, points, configs, sums):
    found, task = registry.space(space), Task(parse_workload(problem), catalogue.device(device), space)
    held = enumerate_space(found, task)
    assert (held.points, len(held.feasible)) == (points, configs)
    assert points == configs + sum(held.rejections.values())
    rejected = [f"{rule} {number} {held.examples[rule]}" for rule, number in held.rejections.items()]
    some = held.feasible[:: max(1, configs // 97)]
    features = found.features_of(task, some).items() if some else ()
    parts = (
        [config.json for config in held.feasible],
        rejected,
        [config.json for config in found.seeds(task)] if some else [],
        [f"{name} {value:.9g}" for name, of in features for value in of],
        dict.fromkeys(found.artifact_key(task, config).replace(task.key, "") for config in some),
    )
    assert [checksum(part) for part in parts] == sums, rejected
