"""The smaller records: what they promise beyond holding their fields."""

from __future__ import annotations

import inspect
from dataclasses import FrozenInstanceError

import pytest

from gemmtune.engine.records import catalogue, errors
from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.landscape import Landscape, Point
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict


def test_a_rejection_is_falsy_and_has_its_reason():
    verdict = Verdict.no("shared memory", "263168 B needed > 232448 B a block at 4 stages")
    assert not verdict
    assert (verdict.rule, verdict.reason) == ("shared memory", "263168 B needed > 232448 B a block at 4 stages")
    assert Verdict.yes()
    assert Verdict.yes().reason == ""


@pytest.mark.parametrize(("rule", "reason"), [("", "too large"), ("size", "")])
def test_a_rejection_without_a_rule_or_a_reason_is_refused(rule: str, reason: str):
    with pytest.raises(ValueError, match="needs its rule and its reason"):
        Verdict.no(rule, reason)


def test_a_toolchain_reads_back_from_its_text():
    toolchain = Toolchain((("torch", "2.13.0+cu130"), ("triton", "3.7.1")))
    assert toolchain.text == "torch 2.13.0+cu130, triton 3.7.1"
    assert Toolchain.parse(toolchain.text) == toolchain
    assert Toolchain.parse(Toolchain(()).text) == Toolchain(())


def test_a_task_key_names_device_space_and_problem():
    task = Task(Problem.parse("16x4096x4096"), catalogue.device("H200"), "triton_mm")
    assert task.key == "H200/triton_mm/16x4096x4096:bf16:nt"


def test_records_are_frozen():
    task = Task(Problem.parse("16x16x16"), catalogue.device("H200"), "aten")
    with pytest.raises(FrozenInstanceError):
        task.space = "other"


def test_the_optimum_of_a_landscape_is_its_best_time():
    points = [
        Point(Config({"a": 1}), Status.OK, 2_000.0),
        Point(Config({"a": 2}), Status.OK, 1_500.0),
        Point(Config({"a": 3}), Status.BUILD_FAILED, None, reason="out of registers"),
    ]
    assert Landscape("one", "file", (), {p.config: p for p in points}).optimum_ns == 1_500.0
    with pytest.raises(ValueError, match="empty"):
        _ = Landscape("none", "file", (), {points[2].config: points[2]}).optimum_ns


def test_every_error_is_public_and_has_one_base_class():
    defined = {
        name for name, value in vars(errors).items() if inspect.isclass(value) and value.__module__ == errors.__name__
    }
    assert {name for name in defined if not issubclass(getattr(errors, name), errors.GemmtuneError)} == {"Stopped"}
    assert not issubclass(errors.Stopped, Exception), "a handler of errors would take a stop for one"
