"""The checks of docs/ci.md pass on what is right, and fail on what they are for."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from gemmtune.engine import cli
from gemmtune.engine.consumers.inductor.exporter import InductorExporter
from gemmtune.engine.records.table import Table
from gemmtune.engine.tables.table_file import read_table, write_table

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/ci.md").read_text(encoding="utf-8")
FILES: dict[str, Any] = {
    title: yaml.safe_load(text)
    for title, text in re.findall(r'^```yaml title="([^"]+)"\n(.*?)^```', PAGE, re.DOTALL | re.MULTILINE)
}
JOBS = FILES[".github/workflows/tables.yml"]["jobs"]
STEPS = {job: [step["run"] for step in JOBS[job]["steps"] if "run" in step] for job in JOBS}
HOOKS = {hook["id"]: hook for hook in FILES[".pre-commit-config.yaml"]["repos"][0]["hooks"]}
ENTRY = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 3}
SERVED = "E=8,N=1792,device_name=NVIDIA_H200.json"


def gemmtune(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Exit status of a command, in this process."""
    monkeypatch.setattr(sys, "argv", ["gemmtune", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a table with a Triton row."""
    folder = tmp_path_factory.mktemp("tuned")
    with pytest.MonkeyPatch.context() as patch:
        told = ("--problem", "16x4096x4096:bf16:nt", "--budget", "16", "--no-report", "--out", str(folder))
        assert gemmtune(patch, "tune", *told) == 0
    return folder


@pytest.fixture
def repository(tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose main branch, as a remote names it, has the table and a file of vLLM."""
    shutil.copy(tuned / "table.json", tmp_path)
    (tmp_path / "deploy/vllm").mkdir(parents=True)
    keys = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096)
    (tmp_path / "deploy/vllm" / SERVED).write_text(json.dumps({str(m): ENTRY for m in keys}), encoding="utf-8")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "table"]):
        subprocess.run([*git, *command], cwd=tmp_path, check=True)
    subprocess.run(["git", "update-ref", "refs/remotes/origin/main", "HEAD"], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_BASE_REF", "main")
    return tmp_path


def run(monkeypatch: pytest.MonkeyPatch, script: str, *further: str) -> int:
    """Exit status of a step: its lines of gemmtune in this process, others in a shell."""
    for line in script.strip().splitlines():
        program, *arguments = line.split()
        if program == "gemmtune":
            status = gemmtune(monkeypatch, *arguments, *further)
        else:
            status = subprocess.run(["bash", "-c", line], check=False).returncode
        if status:
            return status
    return 0


def installed(monkeypatch: pytest.MonkeyPatch, script: str, folder: Path) -> None:
    """Run the step that loads a table, in this process."""
    path, program = re.fullmatch(r"PYTHONPATH=(\S+) python -c '(.*)'", script).groups()
    monkeypatch.syspath_prepend(str(folder / path))
    kept = {name: module for name, module in sys.modules.items() if name.startswith("gemmtune_inductor")}
    for name in kept:
        del sys.modules[name]
    space: dict[str, Any] = {}
    try:
        exec(program, space)
    finally:
        if loaded := sys.modules.get("gemmtune_inductor"):
            loaded.uninstall()
        for name in [name for name in sys.modules if name.startswith("gemmtune_inductor")]:
            del sys.modules[name]
        sys.modules |= kept


def export(table: Table, folder: Path) -> None:
    """Write what production loads."""
    for name, text in InductorExporter().export(table).items():
        path = folder / "deploy/inductor" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_the_loader_takes_a_table_of_this_torch_and_refuses_another_s(repository, monkeypatch):
    pytest.importorskip("torch")
    table = read_table(repository / "table.json")
    export(table, repository)  # recorded under torch 2.11
    (step,) = (script for script in STEPS["read"] if "policy=" in script)
    with pytest.raises(RuntimeError, match="made with another source of triton::mm"):
        installed(monkeypatch, step, repository)
    export(Table(table.device, (), table.objective), repository)  # no row is of a template
    installed(monkeypatch, step, repository)


def test_a_changed_row_and_a_faulty_file_fail_the_checks(repository, monkeypatch):
    (audit,) = (script for script in STEPS["read"] if "gemmtune check" in script)
    (diff,) = (script for script in STEPS["read"] if "diff" in script)
    assert (run(monkeypatch, audit), run(monkeypatch, diff)) == (0, 0)
    table = read_table(repository / "table.json")
    write_table(repository / "table.json", Table(table.device, (), table.objective))
    (repository / "deploy/vllm" / SERVED).write_text('{"1": {}}', encoding="utf-8")
    assert (run(monkeypatch, audit), run(monkeypatch, diff)) == (1, 1)


def test_the_gpu_s_job_verifies_the_table(repository, monkeypatch):
    doctor, verify = STEPS["measure"]
    assert run(monkeypatch, verify, "--replay", "h200") == 0  # the landscapes answer in the GPU's place
    assert doctor == "gemmtune doctor"


def test_the_hooks_refuse_an_edited_table_and_a_faulty_file(repository, monkeypatch):
    table, served = repository / "table.json", repository / "deploy/vllm" / SERVED
    assert re.search(HOOKS["gemmtune-table"]["files"], "a/table.json")
    assert not re.search(HOOKS["gemmtune-table"]["files"], "a/cute_table.json")
    assert re.search(HOOKS["gemmtune-audit"]["files"], str(served.relative_to(repository)))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    edited = repository / "edited/table.json"
    edited.parent.mkdir()
    edited.write_text(table.read_text(encoding="utf-8").replace("H200", "H100"), encoding="utf-8")
    hook = f"{HOOKS['gemmtune-table']['entry']} {table} {edited}"
    done = subprocess.run(hook, shell=True, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("gemmtune: ")) == (2, 1)
    assert f"{edited}: edited after it was written" in done.stderr
    assert run(monkeypatch, f"{HOOKS['gemmtune-audit']['entry']} {served}") == 0
