"""A cluster that gemmtune starts itself: its actors start processes, and say why where they cannot."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import nullcontext
from threading import Timer

import pytest

pytest.importorskip("ray", reason="needs gemmtune[ray]")

import ray

from gemmtune.engine.records.errors import UsageError

pytestmark = [pytest.mark.slow(9, together="ray"), pytest.mark.timeout(300)]

BEGIN = """
import contextlib
import os
import socket
from pathlib import Path

import ray

from gemmtune.engine.execution.ray.actor import BuilderActor
from gemmtune.engine.execution.ray.cluster import Cluster
from gemmtune.engine.measure.builder import builder_pool

def make_builders(folder, notify):
    return builder_pool(("aten",), folder, 1, notify=notify)


if __name__ == "__main__":
    before = os.umask(0o022)
    cluster = Cluster(cpus=1)
    assert os.umask(before) == 0o022
    host, port = ray.get_runtime_context().gcs_address.split(":")
    assert host == "127.0.0.1"
    session = Path(ray._private.worker._global_node.get_session_dir_path())
    assert session.parent.parent.stat().st_mode & 0o777 == 0o700, "others can enter it"
    with contextlib.suppress(OSError):  # no network, or the refusal that is wanted
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))  # sends nothing, and chooses the interface
            outside = probe.getsockname()[0]
        socket.create_connection((outside, int(port)), timeout=5)
        raise SystemExit(f"the cluster listens at {outside}")
    token = Path.home() / ".ray" / "auth_token"
    assert not token.exists() or token.stat().st_mode & 0o777 == 0o600
    actor = cluster.start(BuilderActor, make_builders, cluster.nodes()[0], 1, 0)
    print(ray.get(actor.begin.remote(), timeout=120).size)
    ray.get(actor.close.remote(), timeout=60)
    cluster.close()
    assert not session.parent.parent.exists()
"""
LOST = """
import os
import signal
import sys
import time

import ray

from gemmtune.engine.execution.ray.cluster import Cluster
from gemmtune.engine.execution.ray.executor import RayMachines
from gemmtune.engine.records.errors import GemmtuneError

if __name__ == "__main__":
    cluster = Cluster(cpus=1)
    machines = RayMachines(cluster, lambda node: ((), ()))
    machines.wait(0.1)
    (server,) = ray._private.worker._global_node.all_processes["gcs_server"]
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()
    try:
        machines.wait(0.1)
    except GemmtuneError as error:
        print(error)
    machines.close()
    cluster.close()
    sys.exit(2)
"""


def test_an_actor_of_its_own_cluster_on_loopback_starts_builders(tmp_path, own_ray):
    script = tmp_path / "begin.py"
    script.write_text(BEGIN)
    done = subprocess.run(
        [sys.executable, "-P", script], capture_output=True, text=True, check=False, timeout=280, env=own_ray
    )
    assert done.stdout.strip() == "1", done.stderr[-4000:]


def test_a_cluster_of_its_own_that_lost_a_process_ends_in_one_line(tmp_path, own_ray):
    script = tmp_path / "lost.py"
    script.write_text(LOST)
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-P", script], capture_output=True, text=True, check=False, timeout=280, env=own_ray
    )
    assert done.returncode == 2, done.stderr[-4000:]
    assert done.stdout.startswith("the Ray cluster is lost: its gcs_server ended; what was measured is kept: give")
    assert time.monotonic() - started < 60, "Ray waited for its dead process"


@pytest.mark.parametrize("parent", ["/tmp", "x" * 60])
def test_a_ray_that_does_not_start_is_one_error_and_leaves_no_folder(tmp_path, monkeypatch, parent):
    from gemmtune.engine.execution.ray import cluster as ray_cluster

    folder = tmp_path / parent  # which "/tmp" replaces
    folder.mkdir(exist_ok=True)
    monkeypatch.setenv("RAY_TMPDIR", str(folder))
    given = {}

    def init(**options):
        given.update(options, mode=os.stat(os.path.dirname(options["_temp_dir"])).st_mode & 0o777)
        raise Exception("The current node timed out")

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(UsageError, match="Ray starts no cluster here: Exception: The current node timed out; --fleet"):
        ray_cluster._connect("local", 1, pytest.fail)
    sockets = f"{given['_temp_dir']}/session_2026-11-26_18-30-59_052234_{2**22}/sockets/plasma_store"
    assert len(sockets) <= 107 - len(".10")
    assert given["mode"] == 0o700
    assert not os.path.exists(os.path.dirname(given["_temp_dir"]))


@pytest.mark.parametrize("failures", [2, 9])
def test_a_server_that_starts_no_process_for_the_driver_is_asked_again(monkeypatch, failures):
    from gemmtune.engine.execution.ray import cluster as ray_cluster

    asked = []
    cause = 'Traceback:\n  File "proxier.py"\nRuntimeError: Starting Ray client server failed.'

    def init(*, address, **_):
        asked.append(address)
        if len(asked) <= failures:
            raise ConnectionAbortedError(f"Initialization failure from server:\n{cause}")

    monkeypatch.setattr(ray, "init", init)
    notices = []
    outcome = pytest.raises(UsageError, match="answers at name: RuntimeError: Starting Ray client server failed")
    with outcome if failures > 3 else nullcontext():
        ray_cluster._connect("name", None, notices.append)
    assert len(asked) == min(failures, 3) + 1
    assert len(notices) == min(failures, 3)


def test_a_ray_that_runs_here_is_found_where_ray_leaves_its_address(tmp_path, monkeypatch):
    from gemmtune.engine.execution.ray import cluster as ray_cluster

    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        (tmp_path / "ray").mkdir()
        (tmp_path / "ray" / "ray_current_cluster").write_text(address)
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        monkeypatch.delenv("RAY_TMPDIR", raising=False)
        assert ray_cluster._running_here(pytest.fail) == address
        monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "other"))
        assert ray_cluster._running_here(pytest.fail) is None
        monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    assert ray_cluster._running_here(pytest.fail) is None, "nothing listens there any more"


@pytest.fixture
def silent_server():
    """The address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_a_server_that_is_no_ray_is_given_up_after_a_line_of_what_is_waited_for(silent_server, monkeypatch, scheme):
    from gemmtune.engine.execution.ray import cluster as ray_cluster

    monkeypatch.setattr(ray_cluster, "_SILENT_SECONDS", 0.1)
    monkeypatch.setattr(ray_cluster, "_ANSWER_SECONDS", 0.2)
    notices = []
    started = time.monotonic()
    with pytest.raises(
        UsageError, match=f"no Ray cluster answers at {scheme}{silent_server} in 0.3 s: RAY_ADDRESS=local"
    ):
        ray_cluster._await_answer(scheme + silent_server, notices.append)
    assert time.monotonic() - started < 10
    assert notices == [f"waiting up to 0.2 s for the Ray cluster at {scheme}{silent_server}"]


def test_ctrl_c_ends_the_wait_for_a_cluster_at_once(silent_server, default_signals):
    from gemmtune.engine.execution.ray import cluster as ray_cluster

    interrupt = Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        ray_cluster._await_answer(silent_server, pytest.fail)  # the notice would come after 2 s


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away")
def test_an_address_that_another_user_left_is_ignored_with_a_notice(silent_server, tmp_path, monkeypatch):
    from gemmtune.engine.execution.ray import cluster as ray_cluster

    file = tmp_path / "ray" / "ray_current_cluster"
    file.parent.mkdir()
    file.write_text(silent_server)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    notices = []
    assert ray_cluster._running_here(notices.append) == silent_server
    os.chown(file, 65534, 65534)
    assert ray_cluster._running_here(notices.append) is None
    assert [f"{file} belongs to user 65534 and is ignored" in notice for notice in notices] == [True]


def test_an_address_file_that_is_a_pipe_is_not_waited_for(tmp_path, monkeypatch):
    from gemmtune.engine.execution.ray import cluster as ray_cluster

    (tmp_path / "ray").mkdir()
    os.mkfifo(tmp_path / "ray" / "ray_current_cluster")
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    assert ray_cluster._running_here(pytest.fail) is None


def test_a_token_that_others_can_read_becomes_private(tmp_path, monkeypatch):
    from gemmtune.engine.execution.ray import cluster as ray_cluster

    token = tmp_path / "auth_token"
    token.write_text("secret")
    token.chmod(0o644)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    ray_cluster._protect_token()
    assert token.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away")
def test_a_token_of_another_user_is_refused(tmp_path, monkeypatch):
    from gemmtune.engine.execution.ray import cluster as ray_cluster

    token = tmp_path / "auth_token"
    token.write_text("known to them")
    os.chown(token, 65534, 65534)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    with pytest.raises(UsageError, match="auth_token belongs to user 65534, who could run code in the cluster"):
        ray_cluster._protect_token()
