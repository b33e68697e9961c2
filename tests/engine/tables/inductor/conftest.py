"""Fixture that runs a probe of Inductor in a process of its own, which may have another torch."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from gemmtune.engine.tables.inductor.exporter import InductorExporter
from gemmtune.engine.testing.exporter_conformance import example_table


@pytest.fixture(scope="module")
def probed(tmp_path_factory):
    """Return a function that runs a probe on exported ranges with the Python of INDUCTOR_PROBE_PYTHON."""
    python = os.environ.get("INDUCTOR_PROBE_PYTHON", sys.executable)
    if python == sys.executable and (find_spec("torch") is None or find_spec("triton") is None):
        pytest.skip("torch or triton is not installed")

    def run(probe, ranges, *arguments):
        folder = tmp_path_factory.mktemp("export")
        for name, text in InductorExporter().export(replace(example_table(), rows=(), ranges=ranges)).items():
            (folder / name).write_text(text, encoding="utf-8")
        settings = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), "PYTHONWARNINGS": "ignore"}
        done = subprocess.run(
            [python, str(Path(__file__).with_name(probe)), str(folder), *arguments],
            env={**os.environ, **settings, "TORCH_LOGS": "recompiles"},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done

    return run
