"""Sweeps of public kernels tell which configs of another kernel are worth trying first."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("triton", reason="triton is not installed")

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Status, Trial
from gemmtune.engine.records.task import Task
from gemmtune.engine.scheduling.task_search import TaskSearch
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.kinds import expand_workloads
from gemmtune.engine.search.enumeration import feasible_configs
from gemmtune.engine.search.samplers.transfer import TransferSampler
from gemmtune.spaces.triton import guess

SOFTMAX = f"triton:{Path(__file__).parents[3] / 'docs/examples/own_kernel/softmax.py'}:Softmax"
SPACE = registry.space("triton_kernel")
TASK = Task(expand_workloads(SOFTMAX)[0], catalogue.device("H200"), "triton_kernel")
PRODUCTS = {"Fp8BlockGemm", "Gemm", "GroupedSwiglu", "Int8Gemm"}


@pytest.fixture(scope="module")
def sweeps():
    return guess.sweeps()


@pytest.fixture(scope="module")
def forest(sweeps):
    """Return the forest of a few kernels: the whole one takes a second."""
    return guess.fit([sweep for sweep in sweeps if sweep.kernel in PRODUCTS - {"Gemm"}])


def test_each_sweep_holds_a_kernels_whole_space(sweeps):
    assert (len(sweeps), len({sweep.kernel for sweep in sweeps})) == (27, 14)
    for sweep in sweeps:
        assert len(set(sweep.configs)) == len(sweep.times_ns) == len(sweep.programs) >= 225
        assert sum(time < math.inf for time in sweep.times_ns) >= 200


def test_other_products_lead_near_the_best_config_of_one_that_was_left_out(sweeps, forest):
    for sweep in (each for each in sweeps if each.kernel == "Gemm"):
        expected = forest(guess.traits(sweep.configs, sweep.programs, sweep.least_bytes, 132))
        first = np.argsort(expected, kind="stable")[:16]
        assert min(sweep.times_ns) > 0.98 * min(sweep.times_ns[i] for i in first)


def test_traits_say_how_a_launch_fills_the_gpu_whatever_the_parameters_names():
    one = Config({"BM": 64, "G": 8, "num_warps": 4, "maxnreg": "None"})
    other = Config({"TILE": 64, "GROUP": 8, "num_warps": 4, "num_stages": 3, "maxnreg": 256})
    found = [guess.traits([each], [132], 2**20, 132) for each in (one, other)]
    assert np.array_equal(*found)
    assert found[0][0, :2].tolist() == [6.0, -1.0]  # elements of a block, and per thread
    assert not np.array_equal(found[0], guess.traits([one], [132], 2**20, 66))


def test_a_search_of_an_own_kernel_is_given_the_guess(monkeypatch, forest):
    monkeypatch.setattr(guess, "_forest", lambda: forest)
    configs = tuple(feasible_configs(SPACE, TASK))
    search = TaskSearch(TASK, SPACE, lambda: configs, TransferSampler, 16, seed=0, batch=4)
    first, second = (SPACE.guess(TASK, configs) for _ in range(2))
    assert first.slowness.shape == (len(configs),)
    assert first.shapes.shape == (len(configs), guess.SHAPES)
    assert np.array_equal(first.slowness, second.slowness)
    assert search.next_batch() == list(SPACE.seeds(TASK))
    search.tell([Trial(config, Status.OK, 1e3) for config in SPACE.seeds(TASK)])
    assert len(search.next_batch()) == 4


def test_there_is_no_guess_of_a_kernel_whose_file_was_not_read():
    unread = replace(TASK.problem, source="0" * 12, file="")
    assert SPACE.guess(replace(TASK, problem=unread), [Config({"num_warps": 4})]) is None


def test_a_kernel_that_must_move_no_bytes_has_traits():
    found = guess.traits([Config({"BLOCK": 64, "num_warps": 4})], [8], 0, 132)
    assert np.isfinite(found).all()
