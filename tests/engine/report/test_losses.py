"""Tests of the report of a portfolio, with the artifact keys of real spaces."""

from __future__ import annotations

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Evidence, Measurement, Status
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.report.losses import portfolio_report
from gemmtune.engine.seams import registry
from gemmtune.engine.tables.portfolio import LossLimits, Pick, Portfolio

DEVICE = catalogue.device("H200")
OWN = [Config({"BLOCK_M": size}) for size in (64, 128)]
SHARED = Config({"BLOCK_M": 256})
SPACES = {name: registry.space(name) for name in ("quack_gemm", "triton_mm")}
SECONDS = {OWN[0]: 1.0, OWN[1]: 2.5, SHARED: 2.0}


def problems():
    return Problem(512, 1024, 256, weight=3.0), Problem(1024, 1024, 256)


def portfolio(space):
    losses = ((0.004, 0.012), (0.008, 0.01))
    picks = (Pick(p, space, SHARED, own, *loss) for p, own, loss in zip(problems(), OWN, losses, strict=True))
    return Portfolio(LossLimits(), tuple(picks))


def measured(space, **lacking):
    return [
        Measurement(
            Status.OK,
            task=Task(problem, DEVICE, space),
            config=config,
            evidence=Evidence.MEASURED,
            protocol="graph",
            toolchain=Toolchain(()),
            worker="w",
            created_at="t",
            build_seconds=lacking.get("seconds", SECONDS[config]),
        )
        for problem in problems()
        for config in SECONDS
    ]


def test_kernels_that_serve_all_sizes_are_built_once():
    record = portfolio_report(portfolio("quack_gemm"), DEVICE, SPACES, measured("quack_gemm")).to_json()
    assert (record["configs_before"], record["configs"]) == (2, 1)
    assert (record["kernels_before"], record["kernels"]) == (2, 1)
    assert (record["build_seconds_before"], record["build_seconds"]) == (3.5, 2.0)
    assert (record["worst_loss"], record["worst_bound"]) == (0.008, 0.012)
    assert record["mean_loss"] == pytest.approx((3 * 0.004 + 0.008) / 4)
    assert record["picks"][0]["config"] == {"BLOCK_M": 256}


def test_kernels_that_have_their_size_compiled_in_are_built_for_each():
    text = portfolio_report(portfolio("triton_mm"), DEVICE, SPACES, measured("triton_mm")).to_text()
    assert text == (
        "portfolio: 1 config for 2 choices instead of 2; loss 0.80% at worst (upper end of the intervals 1.20%), "
        "0.50% in the weighted mean\nto compile: 2 kernels, 4.0 s, instead of 2, 3.5 s"
    )


def test_missing_build_seconds_are_reported_as_not_recorded():
    report = portfolio_report(portfolio("triton_mm"), DEVICE, SPACES, measured("triton_mm", seconds=None))
    assert report.to_json()["build_seconds"] is None
    assert "2 kernels, seconds not recorded" in report.to_text()


def test_empty_portfolio_compiles_nothing():
    assert "nothing is compiled" in portfolio_report(Portfolio(LossLimits(), ()), DEVICE, SPACES, []).to_text()
    assert portfolio_report(Portfolio(LossLimits(), ()), DEVICE, SPACES, []).to_json()["configs"] == 0
