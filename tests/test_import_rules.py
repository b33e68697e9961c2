"""Imports point one way, as the contracts for import-linter in pyproject.toml say."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_import_keeps_the_rules(tmp_path: Path):
    # Elsewhere than in the checkout: import-linter puts its working directory on sys.path.
    lint = [Path(sys.executable).with_name("lint-imports"), "--config", ROOT / "pyproject.toml", "--no-cache"]
    environment = os.environ | {"PYTHONSAFEPATH": "1"}
    done = subprocess.run(lint, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_room_of_the_engine_has_its_layer():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = {
        name.strip().removeprefix("gemmtune.engine.")
        for contract in settings["contracts"]
        if contract["type"] == "layers"
        for layer in contract["layers"]
        for name in layer.split(":")
    }
    rooms = {path.parent.name for path in (ROOT / "engine").glob("*/__init__.py")}
    rooms |= {path.stem for path in (ROOT / "engine").glob("*.py")} - {"__init__"}
    # The conformance suites stand beside the layers: they test plug-ins of every seam.
    assert rooms - {"testing"} == layers
