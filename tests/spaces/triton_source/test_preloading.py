"""Imports before builders are forked: no second thread is left, and Triton's hash is known."""

from __future__ import annotations

import threading
import time

import pytest

pytest.importorskip("triton", reason="triton is not installed")

from gemmtune.spaces.triton_source import preloading


def test_a_preload_imports_its_modules_and_waits_for_the_hash(monkeypatch):
    events = []

    def key():
        while len(events) < 3:  # modules are imported meanwhile
            time.sleep(0.001)
        events.append("hashed")

    monkeypatch.setattr(preloading, "triton_key", key)
    monkeypatch.setattr(preloading, "import_module", events.append)
    before = threading.active_count()
    preloading.preload("first", "second")
    assert events == ["first", "second", "triton.compiler.code_generator", "hashed"]
    assert threading.active_count() == before
