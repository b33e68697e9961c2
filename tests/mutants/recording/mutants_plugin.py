"""A plug-in of pytest: hear of each function again in each test, and write down how long the test took."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import mutants_recorder
import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    began = time.monotonic()
    if sys.version_info >= (3, 12):
        sys.monitoring.restart_events()
    try:
        return (yield)
    finally:
        mutants_recorder.write(item.nodeid.partition("::")[0], "", f"{time.monotonic() - began:.3f}")
