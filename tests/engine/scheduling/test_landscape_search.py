"""A sampler gets what is known of a recorded landscape's problem and device."""

import math

import pytest

from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.landscape import Landscape, Point
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.scheduling.landscape_search import LandscapeSearch

CONFIGS = (Config({"tile": 16}), Config({"tile": 32}))


@pytest.mark.parametrize(
    ("context", "sms"), [({"device": "A100-80GB"}, 108), ({"device": "unheard of"}, None), ({}, None)]
)
def test_a_known_device_gives_its_sms_without_a_space(context, sms):
    points = {config: Point(config, Status.OK, 1.0) for config in CONFIGS}
    problem = Problem.parse("64x128x256:bf16:nt")
    search = LandscapeSearch(Landscape("one", "file", (Param("tile", (16, 32)),), points, problem, context))
    features = search.features(CONFIGS[0])
    assert features["problem m"] == 6.0
    assert features.get("SMs") == (None if sms is None else math.log2(sms))
