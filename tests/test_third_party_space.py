"""A space in a distribution of its own: one file and one entry point, and gemmtune finds it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gemmtune.engine.tables.table_file import read_table

pytestmark = pytest.mark.slow(8)

PYPROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "toy-space"
version = "1.0"

[project.entry-points."gemmtune.spaces"]
toy = "toy_space:ToySpace"

[tool.setuptools]
py-modules = ["toy_space"]
"""

MODULE = '''\
"""A space of eight tiles, odd ones refused; nothing is compiled."""

from __future__ import annotations

import hashlib
from pathlib import Path

from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.space import Launchable, Space


class ToySpace(Space):
    def params(self, task: Task) -> tuple[Param, ...]:
        return (Param("TILE", (1, 2, 3, 4, 5, 6, 7, 8)),)

    def check(self, task: Task, config: Config) -> Verdict:
        tile = config.integer("TILE")
        return Verdict.no("even", f"TILE={tile} is odd") if tile % 2 else Verdict.yes()

    def seeds(self, task: Task) -> tuple[Config, ...]:
        return (Config({"TILE": 4}),)

    def toolchain(self) -> Toolchain:
        return Toolchain((("toy-space", "1.0"),))

    def build(self, task: Task, config: Config, folder: Path) -> Artifact:
        return Artifact(
            key=self.artifact_key(task, config),
            space="toy",
            path="",
            digest=hashlib.sha256(config.json.encode()).hexdigest(),
            launch=(("tile", config.integer("TILE")),),
            resources=None,
            build_seconds=0.0,
            toolchain=self.toolchain(),
        )

    def load(self, artifact: Artifact, task: Task) -> Launchable:
        raise NotImplementedError("the toy has no kernel")
'''

Run = Callable[..., str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run Python in a process that has the toy distribution installed; returns what it printed."""
    source, installed = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("installed")
    (source / "pyproject.toml").write_text(PYPROJECT)
    (source / "toy_space.py").write_text(MODULE)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--target", str(installed), str(source)]
    done = subprocess.run(pip + offline, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

    def python(*arguments: str) -> str:
        environment = os.environ | {"PYTHONPATH": str(installed)}
        command = [sys.executable, *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return python


def test_the_registry_lists_it(run: Run):
    program = """
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.space import Space
print(*registry.names(Space))
"""
    assert "toy" in run("-c", program).split()


def test_the_registry_loads_it(run: Run):
    program = """
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
space = registry.space("toy")
task = Task(Problem.parse("16x16x16"), catalogue.device("H200"), "toy")
points = list(space.points(task))
print(type(space).__module__, len(points), sum(bool(space.check(task, point)) for point in points))
"""
    assert run("-c", program).split() == ["toy_space", "8", "4"]


def test_it_keeps_the_contract_of_a_space(run: Run):
    program = """
from gemmtune.engine.seams import registry
from gemmtune.engine.testing.space_conformance import check_space
check_space(type(registry.space("toy")))
print("kept")
"""
    assert run("-c", program) == "kept\n"


RECORD = """
import sys
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.landscape import Landscape, Point
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.store.landscapes.landscape_file import write_landscapes

space, device = registry.space("toy"), catalogue.device("H200")
context = {"space": "toy", "device": device.sku, "protocol": "by hand", "toolchain": space.toolchain().text}
landscapes = []
for best, problem in ((2, Problem.parse("16x16x16")), (6, Problem.parse("32x16x16:fp16"))):
    task, points = Task(problem, device, "toy"), {}
    for config in space.points(task):
        if verdict := space.check(task, config):
            time_ns = 1000.0 + 100 * abs(config.integer("TILE") - best)
            points[config] = Point(config, Status.OK, time_ns, samples_ns=(time_ns,) * 9)
        else:
            points[config] = Point(config, Status.INVALID, None, reason=verdict.reason)
    landscapes.append(Landscape(problem.name, "", space.params(task), points, problem, context))
write_landscapes(sys.argv[1], landscapes)
"""
CLI = ("-m", "gemmtune")


def test_gemmtune_space_describes_it(run: Run):
    record = json.loads(run(*CLI, "list", "spaces", "toy", "--problem", "16x16x16", "--json"))
    assert record["params"] == {"TILE": [1, 2, 3, 4, 5, 6, 7, 8]}
    assert (record["points"], record["feasible"], record["rejections"]) == (8, 4, {"even": 4})
    assert record["examples"] == {"even": "TILE=1 is odd"}


def test_gemmtune_tune_searches_it(run: Run, tmp_path: Path):
    landscape, out = tmp_path / "toy.csv.gz", tmp_path / "out"
    run("-c", RECORD, str(landscape))
    printed = run(*CLI, "tune", "--space", "toy", "--replay", str(landscape), "--out", str(out))
    rows = {row.problem.name: row for row in read_table(out / "table.json").rows}
    best = {name: (row.choices[0].space, dict(row.choices[0].config)) for name, row in rows.items()}
    assert best == {"16x16x16:bf16:nt": ("toy", {"TILE": 2}), "32x16x16:fp16:nt": ("toy", {"TILE": 6})}
    assert {row.choices[0].time_ns for row in rows.values()} == {1000.0}
    assert "mean fraction of the recorded optimum: 1.0000" in printed

    # No consumer can run it: the table is written all the same, and a line says what is not exported, and why. The
    # dispatchers of CuTe kernels are not spoken of: nothing here was ever for them.
    (note,) = [line for line in printed.splitlines() if "not exported" in line]
    assert note.startswith("not exported to inductor: ")
    assert "no Inductor template of mm for space 'toy'" in note
    assert sorted(path.name for path in out.iterdir()) == [
        *("measurements.db", "report.html", "run.json", "summary.txt", "table.json")
    ]
    assert (out / "summary.txt").read_text() == printed
    (out / "inductor").mkdir()
    (out / "inductor/inductor_table.json").write_text("{}")
    command = (*CLI, "tune", "--space", "toy", "--replay", str(landscape), "--out", str(out), "--no-report", "--json")
    again = json.loads(run(*command))
    earlier = f"1 file in {out / 'inductor'} is not of this table: inductor_table.json"
    assert again["notes"] == [note, earlier]
    assert again["written"] == [str(out / name) for name in ("table.json", "summary.txt")]
