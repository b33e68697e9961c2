"""A cluster with two kinds of GPUs, which two campaigns share, and whose head is lost."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="needs gemmtune[ray]")

pytestmark = [pytest.mark.slow(18, together="ray"), pytest.mark.timeout(240)]


def test_each_campaign_takes_its_kind_of_gpu_and_a_lost_head_is_told_in_time(tmp_path, own_ray):
    script = Path(__file__).with_name("shared_cluster.py")
    done = subprocess.run(
        [sys.executable, script, tmp_path], env=own_ray, capture_output=True, text=True, timeout=200, check=False
    )
    ended = time.time()
    assert (tmp_path / "report.json").exists(), done.stderr[-3000:]
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["devices"] == [["H200"], ["H100-SXM"]], "labels tell, so that no GPU is asked while others hold it"
    assert report["another"].startswith("no GPU of the cluster is ")
    assert report["unreadable"].startswith("the cluster has 4 GPUs, and gemmtune can read none: ")
    assert (report["parallel"], report["planned"]) == (2, ["H100", "H100"])
    assert report["both"] == [2, 2]
    assert report["demand"] == [[2, [{"GPU": 1.0}], "ray.io/accelerator-type"], [0, []]], "what an autoscaler sees"
    assert report["lost"].startswith("the Ray cluster is lost: its head at ")
    assert "has not answered for 4 s; what was measured is kept" in report["lost"]
    assert report["seconds"] < 40, "before Ray ends the process"
    assert done.returncode == 0, done.stderr[-3000:]
    assert ended - (tmp_path / "report.json").stat().st_mtime < 30
