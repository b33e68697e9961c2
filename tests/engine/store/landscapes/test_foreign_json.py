"""The files of other auto-tuners: Kernel Tuner 1.5.0 wrote the samples, with times made up."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

import gemmtune as gt
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.errors import LandscapeError
from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.report.files import file_report
from gemmtune.engine.store.landscapes.landscape_file import read_landscapes, write_landscapes

SAMPLES = Path(__file__).parent / "foreign"
CACHE, T4 = SAMPLES / "kernel_tuner_cache.json", SAMPLES / "t4_results.json"


def config(block: int, tile: int, padding: int = 0) -> Config:
    return Config({"block_size_x": block, "tile": tile, "use_padding": padding})


def read(folder: Path, found: object) -> Landscape:
    path = folder / "found.json"
    path.write_text(found if isinstance(found, str) else json.dumps(found))
    [landscape] = read_landscapes(path)
    return landscape


def refusal(folder: Path, found: object) -> str:
    with pytest.raises(LandscapeError) as caught:
        read(folder, found)
    assert "found.json" in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("path", [CACHE, T4])
def test_both_formats_hold_every_config_with_its_outcome_and_cost(path):
    [landscape] = read_landscapes(path)
    assert landscape.params == (
        Param("block_size_x", (16, 32, 64)),
        Param("tile", (1, 2)),
        Param("use_padding", (0, 1)),
    )
    assert len(landscape.points) == 8
    best = landscape.points[config(32, 2)]
    assert (best.status, best.time_ns, best.cost_seconds) == (Status.OK, 1.6e6, pytest.approx(0.31125))
    assert best.samples_ns == (1.632e6, 1.6e6, 1.568e6)
    assert landscape.optimum_ns == 1.6e6
    failures = {
        config(64, 1, 1): (Status.INVALID, 0.0005),
        config(64, 2): (Status.RUN_FAILED, 0.3114),
        config(64, 2, 1): (Status.BUILD_FAILED, 0.3105),
    }
    for failed, (status, cost) in failures.items():
        point = landscape.points[failed]
        assert (point.status, point.time_ns, point.samples_ns) == (status, None, ())
        assert point.cost_seconds == pytest.approx(cost)
        assert point.reason


def test_a_cache_names_its_device_and_kernel_and_both_are_named_by_their_file():
    [cache], [results] = read_landscapes(CACHE), read_landscapes(T4)
    assert cache.context == {"device": "Example GPU", "kernel": "stencil"}
    assert (cache.name, results.name) == ("kernel_tuner_cache", "t4_results")
    assert cache.problem is results.problem is None


def test_a_gzip_file_is_read_alike(tmp_path):
    zipped = tmp_path / "kernel_tuner_cache.json.gz"
    zipped.write_bytes(gzip.compress(CACHE.read_bytes()))
    [landscape], [plain] = read_landscapes(zipped), read_landscapes(CACHE)
    assert (landscape.points, landscape.name) == (plain.points, plain.name)


def test_a_cache_written_as_csv_reads_back_equal(tmp_path):
    [landscape] = read_landscapes(CACHE)
    path = tmp_path / "kernel_tuner_cache.csv.gz"
    write_landscapes(path, [landscape])
    [back] = read_landscapes(path)
    assert (dict(back.points), back.context, back.name) == (landscape.points, landscape.context, landscape.name)


def test_the_cache_of_an_interrupted_run_is_read(tmp_path):
    whole = CACHE.read_text().rstrip()
    [landscape] = read_landscapes(CACHE)
    assert read(tmp_path, whole.removesuffix("}\n}") + ",").points == landscape.points
    assert "cut" not in read(tmp_path, whole.removesuffix("}\n}")).context
    torn = read(tmp_path, whole[:-60])
    assert list(torn.points) == list(landscape.points)[:-1]
    assert torn.context["cut"] == "the file ends inside an entry, which is left out"
    assert "the file ends inside an entry" in file_report(str(tmp_path / "found.json")).to_text()
    assert "is truncated" in refusal(tmp_path, whole[: whole.index('"time"')])


def test_a_cache_with_an_entry_twice_is_refused_and_not_cut_back(tmp_path):
    whole = CACHE.read_text().rstrip()
    entries = whole.index('"16,1,0"')
    assert "stands twice" in refusal(tmp_path, whole[:-3] + "," + whole[entries:])


@pytest.mark.parametrize("time", [0.0, -1.0, 1e20, float("inf"), float("nan"), "SomeError"])
def test_a_time_that_no_launch_takes_is_a_failure(tmp_path, time):
    entries = {"1": {"x": 1, "time": time, "times": [time]}, "2": {"x": 2, "time": 3.0}}
    failed, best = read(tmp_path, {"tune_params_keys": ["x"], "cache": entries}).points.values()
    assert (failed.status, failed.time_ns, failed.samples_ns) == (Status.RUN_FAILED, None, ())
    assert (failed.reason, best.time_ns) == (f"time={time!r}", 3e6)


@pytest.mark.parametrize("objective", ["GFLOP/s", "nvml_energy", ["nvml_energy", "GFLOP/s"], 5])
def test_a_cache_of_another_objective_is_named_and_not_read_as_times(tmp_path, objective):
    cache = {"1": {"x": 1, "time": 3.0, "GFLOP/s": 9.0}}
    said = refusal(tmp_path, {"tune_params_keys": ["x"], "objective": objective, "cache": cache})
    assert f"is the cache of a search for {objective!r}" in said
    for timed in ("time", ["time", "nvml_energy"]):
        assert read(tmp_path, {"tune_params_keys": ["x"], "objective": timed, "cache": cache}).optimum_ns == 3e6


def test_a_cache_before_1_0_has_the_error_class_as_its_time(tmp_path):
    entry = {"x": 1, "time": "RuntimeFailedConfig"}
    found = {"tune_params_keys": ["x"], "cache": {"1": entry, "2": {"x": 2, "time": 3.0}}}
    points = read(tmp_path, found).points
    assert points[Config({"x": 1})].status is Status.RUN_FAILED
    assert points[Config({"x": 2})].cost_seconds is None


def test_times_of_t4_have_the_units_the_file_says(tmp_path):
    found = json.loads(T4.read_text())
    found["metadata"]["timeunit"] = "seconds"
    found["results"][0]["measurements"][0] |= {"value": 3200.0, "unit": "microseconds"}
    first = next(iter(read(tmp_path, found).points.values()))
    assert (first.time_ns, first.cost_seconds, first.samples_ns[1]) == (3.2e6, pytest.approx(311.25), 3.2e9)


def test_if_the_objective_is_no_time_the_time_or_the_launches_are_read(tmp_path):
    found = json.loads(T4.read_text())
    for result in found["results"]:
        result["objectives"] = ["GFLOP/s"]
    found["results"][0]["measurements"].append({"name": "GFLOP/s", "value": 900.0, "unit": "GFLOP/s"})
    found["results"][1]["measurements"] = [{"name": "GFLOP/s", "value": 900.0, "unit": "GFLOP/s"}]
    times = [point.time_ns for point in read(tmp_path, found).points.values()]
    assert times[:2] == [3.2e6, 2.5e6]
    found["results"][1]["times"]["runtimes"] = []
    assert "results[1]: no time" in refusal(tmp_path, found)


def test_a_search_for_what_is_no_time_is_refused_by_its_objective(tmp_path):
    found = json.loads(T4.read_text())
    for result in found["results"]:
        result["objectives"] = ["score"]
        result["measurements"].append({"name": "score", "value": -1.295, "unit": ""})
    assert "results[0] is of a search for score, and a landscape holds times" in refusal(tmp_path, found)
    found["results"][0]["objectives"] = ["energy", "time"]
    assert "results[1] is of a search for score" in refusal(tmp_path, found)


def test_the_first_entry_of_a_repeated_config_counts(tmp_path):
    found = json.loads(T4.read_text())
    again = json.loads(json.dumps(found["results"][0]))
    again["times"] |= dict.fromkeys(("compilation", "benchmark", "framework"), 0)
    found["results"].append(again)
    assert read(tmp_path, found).points == read_landscapes(T4)[0].points


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"kernel": 1}, "neither 'cache', as a cache file of Kernel Tuner, nor 'results', as T4"),
        ([1], "expected an object, found [1]"),
        ({"cache": {}}, "tune_params_keys: expected an array, found None"),
        ({"tune_params_keys": ["x"], "cache": {}}, "holds no config"),
        ({"tune_params_keys": ["x"], "cache": {"1": {"x": [1]}}}, "x: expected true, false, a number or a text"),
        ({"tune_params_keys": ["x"], "cache": {"1": {"x": 1}}}, "entry 1, time=None is not a number from"),
        ({"tune_params_keys": ["x", "y"], "cache": {"1": {"x": 1, "time": 1}}}, "does not have the parameters x, y"),
        ({"tune_params_keys": ["x", "x"], "cache": {"1,1": {"x": 1, "time": 1}}}, "names 'x' twice"),
        ({"results": [], "metadata": {"timeunit": "fortnights"}}, "unknown metadata.timeunit 'fortnights'"),
        ({"results": []}, "holds no config"),
        ({"results": [{"configuration": {"x": 1}, "invalidity": "correct"}]}, "results[0], times: expected an object"),
        ({"results": [{"configuration": {"x": 1}, "times": {}}]}, "[0], invalidity: expected a text, found None"),
        (
            {"Metadata": {"TimeUnit": "Seconds"}, "Results": [{"Configuration": [{"Name": "x", "Value": 1}]}]},
            "Results[0], Status: expected a text, found None",
        ),
        (
            {"tune_params_keys": ["x"], "cache": {"1,2": {"x": 1, "y": 2, "time": 3.0}, "1,4": {"x": 1, "time": 5.0}}},
            "two cache entries have one config; does tune_params_keys lack a parameter?",
        ),
    ],
)  # fmt: skip
def test_an_error_names_the_entry_and_what_was_expected(tmp_path, found, said):
    assert said in refusal(tmp_path, found)


KTT = {
    "Metadata": {"ComputeApi": "CUDA", "Device": "A100", "KttVersion": "2.1", "TimeUnit": "Microseconds"},
    "Results": [
        {
            "KernelName": "gemm",
            "Status": status,
            "TotalDuration": duration,
            "TotalOverhead": 400.0,
            "Configuration": [{"Name": "MWG", "IsDouble": False, "Value": mwg}],
            "ComputationResults": [],
        }
        for mwg, status, duration in ((16, "Ok", 87.5), (32, "ValidationFailed", 0.0), (64, "CompilationFailed", 0.0))
    ],
}


def test_results_of_ktt_are_read(tmp_path):
    landscape = read(tmp_path, KTT)
    points = {point.config.integer("MWG"): point for point in landscape.points.values()}
    assert (points[16].time_ns, points[16].cost_seconds) == (87_500, pytest.approx(487.5e-6))
    assert (points[32].status, points[64].status) == (Status.WRONG_RESULT, Status.BUILD_FAILED)
    assert landscape.context == {"device": "A100"}
    assert "unknown Metadata.TimeUnit 'Hours'" in refusal(tmp_path, {**KTT, "Metadata": {"TimeUnit": "Hours"}})


def test_results_of_cltune_are_read(tmp_path):
    results = [{"kernel": "gemm", "time": time, "parameters": {"MWG": mwg}} for mwg, time in ((16, 0.5), (32, 0.25))]
    landscape = read(tmp_path, {"device": "A100", "results": results})
    assert (landscape.optimum_ns, len(landscape.points), landscape.context) == (250_000, 2, {"device": "A100"})
    assert "Results', as KTT; it has: runs; further formats" in refusal(tmp_path, {"runs": []})


@pytest.mark.parametrize("form", ["t4", "kernel_tuner"])
def test_what_is_written_for_another_tuner_reads_back(tmp_path, form):
    for source in (CACHE, T4):
        [landscape] = read_landscapes(source)
        gt.write_landscapes(tmp_path / "out.json", landscape, form=form)
        [back] = read_landscapes(tmp_path / "out.json")
        assert back.params == landscape.params
        for point, other in zip(landscape.points.values(), back.points.values(), strict=True):
            assert (other.config, other.status) == (point.config, point.status)
            assert other.time_ns == pytest.approx(point.time_ns)
            assert other.samples_ns == pytest.approx(point.samples_ns)
            assert other.cost_seconds == pytest.approx(point.cost_seconds)
    ours = gt.landscapes("h200", space="triton_mm")[0]
    few = replace(ours, points=dict(list(ours.points.items())[:9]))
    gt.write_landscapes(tmp_path / "out.json", few, form=form)
    [back] = read_landscapes(tmp_path / "out.json")
    assert (back.name, back.problem) == (few.name, few.problem)
    assert [param.name for param in back.params] == [param.name for param in few.params]  # samplers draw in their order
    assert {**back.context, "kernel": ""} == {**few.context, "kernel": ""}
    broken = (tmp_path / "out.json").read_text().replace('"k": "', '"k": "-')
    assert "metadata.problem: " in refusal(tmp_path, broken)
    with pytest.raises(LandscapeError, match="holds one landscape, and 2 are given"):
        gt.write_landscapes(tmp_path / "out.json", [landscape, landscape], form=form)
    with pytest.raises(LandscapeError, match="no format 'xml'; known: csv, t4, kernel_tuner"):
        gt.write_landscapes(tmp_path / "out.json", landscape, form="xml")
