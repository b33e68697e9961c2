"""A space in a distribution of its own: one file and one entry point, and gemmtune finds it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

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
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
space = registry.space("toy")
task = Task(Problem.parse("16x16x16"), catalogue.device("H200"), "toy")
points = list(space.points(task))
print(type(space).__module__, len(points), sum(bool(space.check(task, point)) for point in points))
"""
    assert run("-c", program).split() == ["toy_space", "8", "4"]


# The command line: `run("-m", "gemmtune.engine.cli", "tune", "--space", "toy", ...)`.
