"""The engines' wheels, where a folder of them is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

WHEELS = "GEMMTUNE_ENGINE_WHEELS"


@pytest.fixture(scope="session")
def wheel_of():
    """Return the wheel of an engine; the test is skipped where the folder of wheels is not named or lacks it."""

    def find(package: str) -> Path:
        folder = os.environ.get(WHEELS)
        if not folder:
            pytest.skip(f"needs {WHEELS}=FOLDER with {package}-*.whl (pip download --no-deps {package})")
        found = sorted(Path(folder).glob(f"{package}-*.whl"))
        if not found:
            pytest.skip(f"no {package}-*.whl in {folder}: pip download --no-deps {package} -d {folder}")
        return found[-1]

    return find
