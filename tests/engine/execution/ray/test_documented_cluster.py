"""The commands of docs/cluster.md, on ports of this host: a cluster with a token, a node that joins, a campaign."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="needs gemmtune[ray]")

ROOT = Path(__file__).parents[4]
BIN = Path(sys.executable).parent
CAMPAIGN = 'problems = ["16x4096x4096:bf16:nt"]\nbudget = 8\n'

pytestmark = [pytest.mark.slow(15, together="ray"), pytest.mark.timeout(300)]


def documented(beginning: str) -> list[str]:
    """Return the words of the page's first command that begins so, without its comment."""
    line, *_ = re.findall(rf"^({re.escape(beginning)}.*?) *(?:#.*)?$", (ROOT / "docs/cluster.md").read_text(), re.M)
    return line.split()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def processes(mark: str) -> list[int]:
    """Return the processes whose command line has the mark."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                text = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            found += [int(folder.name)] if mark.encode() in text else []
    return found


@pytest.fixture
def host(tmp_path_factory, monkeypatch):
    """Give a home without a token and a folder of Ray, whose processes end with the test; return how to start words."""
    home = tmp_path_factory.mktemp("home")
    folder = tempfile.mkdtemp(prefix="ray")  # short: Ray's sockets lie in it
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("RAY_TMPDIR", folder)
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)

    started = []

    def start(words: list[str], *more: str, **environment: str) -> subprocess.Popen[str]:
        command, pipe = [str(BIN / words[0]), *words[1:], *more], subprocess.PIPE
        process = subprocess.Popen(command, env=os.environ | environment, cwd=home, stdout=pipe, stderr=pipe, text=True)
        started.append(process)
        return process

    yield start
    for number in processes(folder):
        os.kill(number, signal.SIGKILL)
    for process in started:
        process.kill()
        process.communicate()
    shutil.rmtree(folder, ignore_errors=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Return the exit status and all that was printed."""
    printed = "".join(process.communicate(timeout=120))
    return process.returncode, printed


def test_the_page_s_commands_start_a_cluster_that_asks_for_its_token(host, tmp_path):
    status, printed = ended(host(documented("ray get-auth-token")))
    assert status == 0, printed
    token = Path(os.environ["HOME"], ".ray/auth_token")
    [mode] = documented("chmod")[1:-1]
    token.chmod(int(mode, 8))
    assert token.stat().st_mode & 0o077 == 0
    [setting] = documented("export RAY_AUTH_MODE=")[1:]
    with_token = dict([setting.split("=")])
    port, client = free_port(), free_port()
    few = ("--num-cpus=1", "--disable-usage-stats")
    head = [word.replace("6379", str(port)) for word in documented("ray start --head")]
    ports = ("--include-dashboard=false", f"--ray-client-server-port={client}")
    status, printed = ended(host(head, *few, *ports, **with_token))
    assert status == 0, printed
    address = re.search(r"ray start --address='([^']+)'", printed)[1]
    # Ray tries 20 times to join without the token, a second apart.
    without_token = {"RAY_AUTH_MODE": "disabled", "RAY_NUM_REDIS_GET_RETRIES": "5"}
    stranger = host(["python", "-c", f"import ray; ray.init(address={address!r})"], **without_token)
    join = [word.replace("FIRST:6379", address) for word in documented("ray start --address")]
    status, printed = ended(host(join, *few, **with_token))
    assert status == 0, printed
    (Path(os.environ["HOME"]) / "campaign.toml").write_text(CAMPAIGN)
    for fleet in ("ray --device", "ray://"):
        tune = documented(f"gemmtune tune campaign.toml --fleet {fleet}")
        tune = [word.replace("FIRST:10001", f"127.0.0.1:{client}") for word in tune]
        out = tmp_path / fleet.split()[0].strip(":/")
        status, printed = ended(host(tune, "--out", str(out), "--no-report", **with_token))
        assert status == 0, printed
        assert (out / "table.json").is_file()
    status, printed = ended(stranger)
    assert status != 0, "the cluster was joined without its token"
    assert "auth" in printed.lower(), printed
