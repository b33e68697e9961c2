from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gemmtune.engine.toolchain.gpu_info import present_device
from gemmtune.engine.toolchain.telemetry import gpu_names

without_driver = pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="an NVIDIA driver is on this machine")


@without_driver
def test_there_is_no_device_without_a_driver():
    assert present_device() is None


@without_driver
def test_there_are_no_gpu_names_without_a_driver():
    assert gpu_names() == ()


def test_a_hidden_gpu_is_no_device_and_torch_is_not_imported():
    program = """
import json, sys
from gemmtune.engine.toolchain.gpu_info import present_device
print(json.dumps([present_device(), [name for name in ("torch", "triton") if name in sys.modules]]))
"""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [None, []]


@pytest.mark.gpu
def test_the_present_gpu_is_the_one_the_driver_names():
    names = gpu_names()
    if not names:
        pytest.skip("no NVIDIA GPU on this machine")
    device = present_device()
    assert device.name in names
    assert device.sm_count > 0
    assert device.capability >= (7, 0)
