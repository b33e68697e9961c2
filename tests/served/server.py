"""Process that imports the command line once and runs each command in a fork of itself: the imports take longer.

Usage: server.py SOCKET. Prints a line once clients can connect, and ends when its stdin does. See client.py.
"""

from __future__ import annotations

import gc
import io
import json
import os
import runpy
import select
import signal
import socket
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

WARM = ("tune", "--problem", "16x4096x4096", "--device", "H200", "--budget", "2", "--report", "--out")
"""Command that imports what most commands use, and reads the recorded landscapes."""


def warm_up():
    from gemmtune.engine.cli import commands

    said = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(said), redirect_stderr(said):
        assert commands.run([*WARM, folder]) == 0
    gc.freeze()  # a fork that searched these objects for cycles would copy their memory
    assert not {"torch", "ray"} & sys.modules.keys(), "a fork of them would differ from a process of its own"
    assert len(os.listdir("/proc/self/task")) == 1, "a fork has one thread"


def received(client):
    """Return what the client asks, and its standard streams."""
    text, streams, _, _ = socket.recv_fds(client, 65536, 3)
    while not text.endswith(b"\n"):
        text += client.recv(65536)
    return json.loads(text), streams


def supervise(client, process):
    """Send the exit status of the command, and kill it once its client is gone; end this process."""
    ended = os.pidfd_open(process)
    if ended in select.select([client, ended], [], [])[0]:
        client.send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
    else:
        os.kill(process, signal.SIGKILL)
    os._exit(0)


def run(asked, streams):
    """Run the command as this process's own program."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, max(streams) + 1)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    program, *arguments = asked["command"]
    if program == "python":
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).parent.absolute()))
        runpy.run_path(arguments[0], run_name="__main__")
        gc.freeze()  # Python searches for cycles as it ends, among what torch imports for more than a second
    else:
        from gemmtune.__main__ import main

        sys.argv = [program, *arguments]
        main()


def serve(listener):
    """Accept clients until stdin ends; return the command in the fork that runs it, and nothing in the server."""
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        client = listener.accept()[0]
        if os.fork() == 0:
            asked, streams = received(client)
            process = os.fork()
            if process == 0:
                return asked, streams
            for stream in streams:
                os.close(stream)
            supervise(client, process)
        client.close()
    return None


if __name__ == "__main__":
    warm_up()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(sys.argv[1])
        listening.listen(64)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        command = serve(listening)
    if command:
        run(*command)
