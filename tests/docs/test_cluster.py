"""The blocks of docs/cluster.md: what a machine without a cluster can check of them."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from gemmtune.engine.cli.commands import run as run_command

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/cluster.md").read_text(encoding="utf-8")
JOB, SBATCH, DOCKERFILE = (
    re.search(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[1]
    for language in ("yaml", "sbatch", "Dockerfile")
)
SPEC = yaml.safe_load(JOB)["spec"]


def is_a_command(words: list[str], capsys) -> bool:
    """Whether the command line knows the command and each of its options."""
    assert words[0] == "gemmtune"
    options = [word for word in words if word.startswith("--")]
    run_command([words[1], "--help"])
    known = set(re.findall(r"--[\w-]+", capsys.readouterr().out)) | {"--database"}
    return set(options) <= known


def test_the_job_runs_a_campaign_on_workers_that_have_its_image_and_a_gpu(capsys):
    command, _, or_cancelled = SPEC["entrypoint"].partition(" || ")
    assert is_a_command(shlex.split(command), capsys)
    assert or_cancelled == "test $? -eq 3"  # of a cancelled campaign
    cluster = SPEC["rayClusterSpec"]
    (workers,) = cluster["workerGroupSpecs"]
    (head,), (worker,) = (each["template"]["spec"]["containers"] for each in (cluster["headGroupSpec"], workers))
    assert head["image"] == worker["image"]
    assert worker["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]
    assert cluster["authOptions"] == {"mode": "token"}
    mounted = {each["name"]: each["mountPath"] for each in head["volumeMounts"]}
    assert {each["name"] for each in cluster["headGroupSpec"]["template"]["spec"]["volumes"]} == mounted.keys()
    assert shlex.split(SPEC["entrypoint"].partition(" || ")[0])[-1] in mounted.values()


def test_the_image_installs_extras_that_there_are():
    (extras,) = re.findall(r"/src\[([\w,]+)\]", DOCKERFILE)
    known = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert all(f"\n{extra} = [" in known for extra in extras.split(","))


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_the_batch_script_starts_the_campaign_on_the_nodes_of_its_job(tmp_path, capsys):
    """SLURM's own commands are replaced, and Ray's start of a cluster with them: its end kills every Ray of a host."""
    programs = {"srun": 'printf "%s\\n" "$@" > started', "scontrol": 'echo "first"; echo "second"'}
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray/auth_token").write_text("0" * 64)
    (tmp_path / "job").write_text(SBATCH)
    path = f"{tmp_path}:{Path(sys.executable).parent}:/usr/bin:/bin"
    job = {"SLURM_JOB_NODELIST": "node[1-2]", "SLURM_NNODES": "2", "SLURM_SUBMIT_DIR": str(tmp_path)}
    environment = {"HOME": str(tmp_path), "PATH": path, **job}
    subprocess.run(["bash", "job"], cwd=tmp_path, env=environment, check=True, timeout=60)
    started = (tmp_path / "started").read_text().splitlines()
    ray, command = started[: started.index("--")], started[started.index("--") + 1 :]
    assert ray == ["ray", "symmetric-run", "--address", "first:6379", "--min-nodes", "2"]
    assert is_a_command(command, capsys)
    assert command[-1] == f"{tmp_path}/out"
