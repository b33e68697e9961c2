"""Run the command line as a person does, on a machine without a GPU."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from gemmtune.engine import cli
from gemmtune.engine.campaign.replayed_backend import recorded_feasible
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.table import Row
from gemmtune.engine.records.task import Task
from gemmtune.engine.report.progress import work
from gemmtune.engine.seams import registry
from gemmtune.engine.store.landscapes.landscape_file import embedded, read_landscapes, write_landscapes
from gemmtune.engine.tables.table_file import read_table
from gemmtune.engine.toolchain.gpu_info import present_device

DECODE = "16x4096x4096:bf16:nt"
MIDDLE = "128x2880x2880:bf16:nt"
TWO = ("--problem", DECODE, "--problem", MIDDLE)
# All there is of the first problem, 400 of the second.
TUNE = ("tune", *TWO, "--sampler", "random", "--budget", "400", "--no-report")
FILES = ("table.json", "inductor/lookup_table.json", "inductor/inductor_table.json")
PACKAGES = ("inductor/gemmtune_inductor", "inductor/gemmtune_record", "inductor/gemmtune_report")
GEMMTUNE = Path(sys.executable).with_name("gemmtune")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if present_device() is not None:
        skipped = pytest.mark.skip(reason="with a GPU the command line measures")
        for item in items:
            if item.path.parent == Path(__file__).parent:
                item.add_marker(skipped)


class Ran(NamedTuple):
    """Exit status and output of one command."""

    status: int
    out: str
    err: str

    @property
    def record(self) -> dict:
        return json.loads(self.out)


def _script(*arguments: str | Path, cwd: Path) -> Ran:
    """The installed console script, in a process of its own."""
    done = subprocess.run([GEMMTUNE, *arguments], cwd=cwd, capture_output=True, text=True, check=False, timeout=100)
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """The command line in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # commands that take a model add its folder
    monkeypatch.setattr(work, "_SILENT_SECONDS", 600.0)  # a busy machine makes quick commands slow

    def command(*arguments: str | Path) -> Ran:
        if arguments[:1] == ("tune",) and not {"--report", "--init"} & {*arguments}:
            arguments += ("--no-report",)  # drawing a page takes longer than most campaigns here
        monkeypatch.setattr(sys, "argv", ["gemmtune", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return Ran(ended.value.code or 0, captured.out, captured.err)

    return command


@pytest.fixture(scope="session")
def tuned(tmp_path_factory) -> Path:
    """A folder in which two problems were tuned into `out`; look, do not touch."""
    folder = tmp_path_factory.mktemp("tuned")
    assert _script(*TUNE, cwd=folder).status == 0
    return folder


def _contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _row_of(problem: str, folder: Path) -> Row:
    return next(row for row in read_table(folder / "out/table.json").rows if row.problem.name == problem)


@cache
def _recorded_configs(problem: str) -> int:
    (landscape,) = [x for x in read_landscapes(embedded("triton_mm")[0]) if x.name == problem]
    task = Task(Problem.parse(problem), catalogue.device("H200"), "triton_mm")
    return len(list(recorded_feasible(registry.space("triton_mm"), task, landscape)))


def _stored(path: Path) -> list[tuple]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT task_id, config, status, samples_ns FROM measurements ORDER BY id").fetchall()


@pytest.fixture(scope="session")
def small(tmp_path_factory) -> Path:
    """The decode problem's landscape of triton_mm in a file of its own: every twelfth config, the best among them."""
    header, *lines = gzip.decompress(embedded("triton_mm")[0].read_bytes()).decode().splitlines(keepends=True)
    path = tmp_path_factory.mktemp("small") / "small.csv"
    path.write_text(header + "".join(line for line in lines if line.startswith("16,4096,4096,mm,")))
    (whole,) = read_landscapes(path)
    points = list(whole.points.items())[::12]
    points.append(min(whole.points.items(), key=lambda item: item[1].time_ns or 1e9))
    write_landscapes(path, [replace(whole, points=dict(points))])
    return path


def _refusal(ran: Ran, *said: str) -> None:
    assert ran.status == 2, ran.err
    assert ran.out == ""
    assert re.fullmatch(r"gemmtune: [^\n]+\n", ran.err), ran.err
    for words in said:
        assert words in ran.err


@pytest.fixture
def refused(run, tuned, small, tmp_path):
    """Check that a command is refused in one line that says these words, in a folder of earlier results."""

    def check(arguments: Sequence[str | Path], *said: str) -> None:
        before = _contents(tmp_path)
        _refusal(run(*arguments), *said)
        assert _contents(tmp_path) == before

    for package in PACKAGES:
        shutil.copytree(tuned / "out" / package, tmp_path / "out" / package)
    for name in (*FILES, "measurements.db", "summary.txt"):
        (tmp_path / "out" / name).write_bytes((tuned / "out" / name).read_bytes())
    (tmp_path / "small.csv").write_text(small.read_text())
    return check


@pytest.fixture
def script() -> Callable[..., Ran]:
    """Run the installed console script in a process of its own."""
    return _script


@pytest.fixture
def contents() -> Callable[..., dict[str, str]]:
    """Read the digest of every file below a folder, by its path."""
    return _contents


@pytest.fixture
def row_of() -> Callable[..., Row]:
    """Read one problem's row of the table that a folder holds."""
    return _row_of


@pytest.fixture
def recorded_configs() -> Callable[..., int]:
    """Count the feasible configs that are recorded of a problem."""
    return _recorded_configs


@pytest.fixture
def stored() -> Callable[..., list[tuple]]:
    """Read every measurement of a database file, in the order it was stored."""
    return _stored


@pytest.fixture
def refusal() -> Callable[..., None]:
    """Check that a command ended with status 2 and one line that says these words."""
    return _refusal
