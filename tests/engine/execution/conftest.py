from __future__ import annotations

import os
import tempfile

import pytest


@pytest.fixture
def own_ray():
    """The environment of a process whose Ray finds no other, and is found by none: Ray keeps one address per folder."""
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:  # a socket's path must be short
        yield {**os.environ, "RAY_TMPDIR": folder}
