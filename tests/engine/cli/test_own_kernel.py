"""Commands after `tune` of an own Triton kernel, in processes that never read the user's file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="triton is not installed")

import gemmtune as gt
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.landscape import Landscape, Point
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.kinds import expand_workloads
from gemmtune.engine.search.enumeration import feasible_configs
from gemmtune.engine.store.landscapes.landscape_file import write_landscapes
from gemmtune.engine.tables.table_file import read_table
from gemmtune.spaces.triton import kind

SCALES = """
import torch
import triton
import triton.language as tl

@triton.autotune(configs=[triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 512})], key=["n"])
@triton.jit
def scale_kernel(out, x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

class ScaleBf16:
    kernel = scale_kernel
    params = {"num_warps": (1, 4), "BLOCK": (256, 512, 1024)}
    cases = {"small": {"n": 1 << 16}, "large": {"n": 1 << 24}}
    outputs = ("out",)
    dtype = torch.bfloat16
    def arguments(self, case, make):
        size = (case["n"],)
        return {"out": make.empty(size, self.dtype), "x": make.normal(size, self.dtype), "n": case["n"]}
    def grid(self, case, meta):
        return (triton.cdiv(case["n"], meta["BLOCK"]),)
    def reference(self, case, arguments):
        return arguments["x"].double() * 2

class ScaleFp32(ScaleBf16):
    dtype = torch.float32
"""
SPACES = ("triton_kernel", "triton_default")
BEST = "BLOCK=1024 num_stages=3 num_warps=4"


def landscape(case, name):
    space, task = registry.space(name), Task(case, catalogue.device("H200"), name)
    speeds = {c: c["BLOCK"] * c["num_warps"] if c else 512 for c in feasible_configs(space, task)}
    times = {config: case.sizes["n"] * 1e4 / speed for config, speed in speeds.items()}
    points = {config: Point(config, Status.OK, ns, (ns,) * 8) for config, ns in times.items()}
    context = {"device": "H200", "space": name, "protocol": "graph-cold-l2", "toolchain": "triton 3.7.0"}
    return Landscape(case.name, "", space.params(task), points, case, context)


def record(folder, name):
    """Write the landscapes of a class in the folder's file."""
    cases = expand_workloads(f"triton:{folder / 'scales.py'}:{name}")
    for space in SPACES:
        write_landscapes(folder / f"{name}_{space}.csv.gz", [landscape(case, space) for case in cases])


def options(folder, name):
    replays = (("--replay", folder / f"{name}_{space}.csv.gz") for space in SPACES)
    return "--kernel", f"{folder / 'scales.py'}:{name}", *(part for each in replays for part in each)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder of the user's file, its landscapes, and `out`, into which one class was tuned; look, do not touch."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "scales.py").write_text(SCALES)
    for name in ("ScaleBf16", "ScaleFp32"):
        record(folder, name)
    recorded = [str(folder / f"ScaleBf16_{space}.csv.gz") for space in SPACES]
    gt.tune(f"triton:{folder / 'scales.py'}:ScaleBf16", backend=recorded, budget=8, out=folder / "out", report=False)
    return folder


@pytest.fixture(autouse=True)
def _file_unread(made, tmp_path, monkeypatch):
    """Forget the user's file, as a new process has not read it, and copy the campaign's folder."""
    monkeypatch.setattr(kind, "_loaded", {})
    shutil.copytree(made / "out", tmp_path / "out")


@pytest.mark.parametrize("path", ["out", "out/table.json", "out/measurements.db"])
def test_show_reads_what_tune_wrote(run, path):
    shown = run("show", path)
    assert (shown.status, shown.out.count(BEST)) == (0, 2), shown.err


def test_show_reads_it_in_a_new_process(script, tmp_path):
    shown = script("show", "out", cwd=tmp_path)
    assert (shown.status, shown.out.count(BEST)) == (0, 2), shown.err


@pytest.mark.parametrize("path", ["out", "out/measurements.db"])
def test_the_page_shows_what_tune_wrote(run, path):
    assert run("show", path, "--html", "out/report.html").status == 0
    assert BEST in Path("out/report.html").read_text(encoding="utf-8")


def test_a_table_is_made_of_what_was_measured(run):
    assert run("export", "out/measurements.db", "--out", "again").status == 0
    assert read_table(Path("again/table.json")).rows == read_table(Path("out/table.json")).rows
    assert Path("again/triton/triton_table.json").is_file()


def test_a_config_of_ones_own_is_measured_beside_the_rows(run, made):
    mine = run("measure", *options(made, "ScaleBf16"), "--config", "BLOCK=256 num_stages=3 num_warps=4", "--json")
    assert mine.status == 0, mine.err
    for found in mine.record["problems"]:
        times = {kernel["role"]: kernel["time_ns"] for kernel in found["kernels"]}
        assert times["yours"] == 4 * times["row"] == times["baseline"] / 2
    assert len(mine.record["problems"]) == 2


def test_a_row_is_shown_as_the_config_to_paste(run, made):
    several = run("show", "out", "--problem", f"triton:{made / 'scales.py'}:ScaleBf16", "--as", "config")
    assert (several.status, "has 2 cases; name one: " in several.err) == (2, True)
    one = f"triton:{made / 'scales.py'}:ScaleBf16:n=65536"
    for problem in (one, read_table(Path("out/table.json")).rows[0].problem.name):
        shown = run("show", "out", "--problem", problem, "--as", "config")
        assert shown.out.startswith('triton.Config({"BLOCK": 1024}, num_warps=4, num_stages=3)\n# gemmtune measure ')


def test_compare_searches_its_landscapes_without_seeds(run, made):
    replayed = run(
        "compare", made / "ScaleBf16_triton_kernel.csv.gz", "--sampler", "transfer", "--seeds", "1", "--budget", "6"
    )
    assert replayed.status == 0, replayed.err
    assert "1.0000" in replayed.out


def test_another_class_is_tuned_into_its_folder(run, made):
    before = Path("before.json")
    shutil.copy("out/table.json", before)
    again = run("tune", *options(made, "ScaleFp32"), "--budget", "8", "--out", "out", "--report")
    assert again.status == 0, again.err
    assert "kept 2 earlier rows" in again.out
    assert len(read_table(Path("out/table.json")).rows) == 4
    kind._loaded.clear()
    differing = run("diff", before, "out/table.json")
    assert (differing.status, differing.out.count("added"), differing.out.count(BEST)) == (1, 2, 2)


def test_an_edited_class_drops_its_earlier_rows(run, made, tmp_path):
    edited = tmp_path / "edited"
    edited.mkdir()
    (edited / "scales.py").write_text(SCALES.replace("triton.cdiv(case", "1 * triton.cdiv(case"))
    record(edited, "ScaleBf16")
    before = read_table(Path("out/table.json")).rows
    assert run("tune", *options(made, "ScaleFp32"), "--budget", "8", "--out", "out").status == 0
    again = run("tune", *options(edited, "ScaleBf16"), "--budget", "8", "--out", "out")
    assert again.status == 0, again.err
    assert "kept 2 earlier rows of other problems (triton:ScaleFp32@" in again.out
    assert f"dropped 2 earlier rows of a class before its edit ({before[0].problem.name}" in again.out
    found = [row.problem for row in read_table(Path("out/table.json")).rows]
    assert len(found) == 4
    assert not {row.problem for row in before} & {*found}
    exported = json.loads(Path("out/triton/triton_table.json").read_text())["kernels"]
    assert {row["facts"]["problem"] for entry in exported for row in entry["rows"]} == {each.name for each in found}


def test_a_gemm_is_tuned_into_its_folder(run, small):
    gemm = ("--problem", "16x4096x4096:bf16:nt", "--replay", small)
    again = run("tune", *gemm, "--budget", "8", "--out", "out", "--report")
    assert again.status == 0, again.err
    assert len(read_table(Path("out/table.json")).rows) == 3


def test_tune_still_asks_for_the_file(run, refusal, made):
    case = read_table(Path("out/table.json")).rows[0].problem.name
    replay = made / "ScaleBf16_triton_kernel.csv.gz"
    refusal(run("tune", "--problem", case, "--replay", replay), "name triton:FILE.py:ScaleBf16")
