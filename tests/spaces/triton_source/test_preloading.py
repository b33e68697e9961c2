"""Imports before builders are forked: no second thread is left, and Triton's hash is known."""

from __future__ import annotations

import threading
import time

import pytest

pytest.importorskip("triton", reason="triton is not installed")

from gemmtune.spaces import triton_preload


def test_a_preload_imports_its_modules_and_waits_for_the_hash(monkeypatch):
    events = []

    def key():
        time.sleep(0.02)
        events.append("hashed")

    monkeypatch.setattr(triton_preload, "triton_key", key)
    monkeypatch.setattr(triton_preload, "import_module", events.append)
    before = threading.active_count()
    triton_preload.preload("first", "second")
    assert events == ["first", "second", "triton.compiler.code_generator", "hashed"]
    assert threading.active_count() == before
