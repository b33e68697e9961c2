"""mypy reads the tests too, and finds in them what does not exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow(5)

ROOT = Path(__file__).parents[1]
TEST = """\
import json.records  # import-not-found
from fractions import Fraction, Ratio  # attr-defined


def test_a_half_is_a_fraction(tmp_path):
    half = Fraction(1, 2)
    assert half.numerater  # attr-defined
    assert half.limit_denominator(1, 2)  # call-arg
    assert tmp_path.anything(half, [])
"""


def test_a_test_that_names_what_is_not_there_is_found(tmp_path: Path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_mistakes.py").write_text(TEST, encoding="utf-8")
    mypy = [Path(sys.executable).with_name("mypy"), "--config-file", ROOT / "pyproject.toml", "tests/test_mistakes.py"]
    environment = os.environ | {"MYPYPATH": str(ROOT), "MYPY_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(mypy, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    found = re.findall(r"^tests/test_mistakes.py:(\d+): error: .*\[([\w-]+)\]$", done.stdout, re.MULTILINE)
    wrong = [(str(at), line.rpartition("# ")[2]) for at, line in enumerate(TEST.splitlines(), 1) if "# " in line]
    assert found == wrong, done.stdout + done.stderr
