"""Fixtures that export rows, and run a probe of Inductor on an export in a process of its own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gemmtune.engine.tables.inductor.exporter import InductorExporter
from gemmtune.engine.testing.exporter_conformance import example_table


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Return a function that exports rows and ranges, and returns the folder."""

    def export(rows=(), ranges=()):
        folder = tmp_path_factory.mktemp("export")
        for name, text in InductorExporter().export(replace(example_table(), rows=rows, ranges=ranges)).items():
            (folder / name).write_text(text, encoding="utf-8")
        return folder

    return export


@pytest.fixture(scope="module")
def probed(probe):
    """Return a function that runs a probe on an export, and returns what it answers."""

    def run(name, folder, *arguments):
        done = probe(Path(__file__).with_name(name), folder, str(folder), *map(str, arguments))
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run
