"""Handle of a child process: how it starts, what it receives, and how it ends, without a process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
from multiprocessing import forkserver
from types import SimpleNamespace

import pytest

from gemmtune.engine.processes import child_process
from gemmtune.engine.processes.child_process import ChildProcess, Event, start_context


class Connection:
    """End of a pipe with messages to read; an exception among them is raised."""

    def __init__(self, *messages):
        self.messages, self.sent, self.closed = list(messages), [], False
        self.readable, self.writable = os.pipe()
        os.write(self.writable, b"." * len(messages))

    def fileno(self):
        return self.readable

    def recv(self):
        os.read(self.readable, 1)
        message = self.messages.pop(0)
        if isinstance(message, BaseException):
            raise message
        return message

    def send(self, message):
        if self.closed == "broken":
            raise BrokenPipeError
        self.sent.append(message)

    def close(self):
        self.closed = True


class Context:
    """Start method whose processes fail to start a number of times."""

    def __init__(self, *failures, messages=(), exitcode=0, pid=None):
        self.failures, self.starts, self.pipes, self.main = list(failures), 0, [], []
        self.ours = Connection(*messages)
        self.exitcode, self.pid, self.ended = exitcode, pid, []

    def Pipe(self, *, duplex=True):  # noqa: N802 (multiprocessing's name)
        ends = (self.ours, Connection()) if duplex else (Connection(), Connection())
        self.pipes.append(ends)
        return ends

    def Process(self, **named):  # noqa: N802
        self.named = named
        return self

    def start(self):
        self.starts += 1
        self.main.append(vars(sys.modules["__main__"]).get("__file__"))
        if self.failures and (error := self.failures.pop(0)):
            raise error

    def join(self, seconds):
        self.ended.append(("join", seconds))

    def kill(self):
        self.ended.append("kill")


@pytest.fixture
def slept(monkeypatch):
    found = []
    monkeypatch.setattr(child_process, "time", SimpleNamespace(sleep=found.append, monotonic=lambda: 5.0))
    return found


def started(context):
    return ChildProcess(context, ["a", "b"], print, {"NAME": "value"})


@pytest.mark.parametrize(
    ("failures", "pauses"), [([], []), ([EOFError()], [0.05]), ([ConnectionResetError(), EOFError()], [0.05, 1.0])]
)
def test_a_process_starts_again_until_the_end_of_a_fork_server_is_noticed(slept, failures, pauses):
    context = Context(*failures)
    started(context)
    assert (context.starts, slept) == (len(failures) + 1, pauses)


def test_a_start_that_fails_three_times_or_otherwise_is_raised(slept):
    with pytest.raises(EOFError):
        started(Context(*[EOFError()] * 3))
    with pytest.raises(MemoryError):
        started(Context(MemoryError()))
    assert slept == [0.05, 1.0]


def test_a_child_gets_its_ends_and_does_not_see_the_main_modules_file(monkeypatch):
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "__file__", "program.py", raising=False)
    context = Context()
    started(context)
    (_, theirs), (lifeline, _) = context.pipes
    arguments = (theirs, lifeline, ("a", "b"), print, {"NAME": "value"})
    assert context.named == {"target": child_process._serve, "args": arguments, "daemon": True}
    assert (theirs.closed, lifeline.closed, context.ours.closed) == (True, True, False)
    assert (context.main, main.__file__) == ([None], "program.py")


@pytest.mark.parametrize(
    ("messages", "received"),
    [
        ([], [None]),
        ([(Event.READY, None)], [(Event.READY, None), None]),
        ([(Event.IMPORTING, "torch")], [None]),
        ([(Event.IMPORTING, "torch"), (Event.IMPORTING, ""), (Event.READY, None)], [(Event.READY, None), None]),
    ],
)
def test_messages_are_received_in_order_without_those_on_imports(messages, received):
    child = started(Context(messages=messages))
    assert [child.receive() for _ in received] == received


WAY_OUT = "install what it lacks, or leave out the spaces that need it"


@pytest.mark.parametrize("error", [EOFError(), OSError()])
@pytest.mark.parametrize(
    ("before", "exitcode", "end"),
    [
        ([], 0, "exit status 0"),
        ([], None, "exit status 0"),
        ([], 3, "exit status 3"),
        ([], -9, "signal SIGKILL"),
        ([(Event.IMPORTING, "torch")], -11, f"signal SIGSEGV over the import of torch; {WAY_OUT}"),
        ([(Event.IMPORTING, "torch"), (Event.IMPORTING, "")], 1, "exit status 1"),
    ],
)
def test_the_end_of_a_process_says_how_and_over_which_import(error, before, exitcode, end):
    context = Context(messages=[*before, error], exitcode=exitcode)
    assert started(context).receive() == (Event.ENDED, end)
    assert context.ended == [("join", 5)]


def test_a_process_that_has_ended_may_be_asked_to_begin():
    context = Context()
    child = started(context)
    child.begin()
    assert context.ours.sent == [None]
    context.ours.closed = "broken"
    child.begin()


@pytest.mark.parametrize("error", [None, ProcessLookupError(), PermissionError()])
def test_the_whole_group_of_a_process_is_killed(monkeypatch, error):
    killed = []

    def killpg(pid, number):
        killed.append((pid, number))
        if error:
            raise error

    monkeypatch.setattr(os, "killpg", killpg)
    context = Context(pid=77)
    started(context).end()
    assert killed == [(77, signal.SIGKILL)]
    assert context.ended == ["kill", ("join", 10.0)]
    assert context.ours.closed
    assert context.pipes[1][1].closed
    never = Context(pid=None)
    started(never).end()
    assert (len(killed), never.ended) == (1, [("join", 10.0)])


def test_a_fork_server_imports_in_the_environment_of_its_children(monkeypatch):
    seen = {}

    class Server:
        def set_forkserver_preload(self, names):
            seen["preload"] = names

    def running():
        seen.update({name: os.environ.get(name) for name in ("MY_NEW", "MY_OLD", "GEMMTUNE_PRELOAD")})

    monkeypatch.setenv("MY_OLD", "old")
    monkeypatch.delenv("MY_NEW", raising=False)
    monkeypatch.setattr(multiprocessing, "get_context", lambda name: name if name == "spawn" else Server())
    monkeypatch.setattr(forkserver, "ensure_running", running)
    before, folder = dict(os.environ), tempfile.tempdir
    assert isinstance(start_context(["one", "two"], {"MY_NEW": "new", "MY_OLD": "changed"}), Server)
    assert seen == {
        "preload": ["gemmtune.engine.processes.preload_without_gc"],
        "MY_NEW": "new",
        "MY_OLD": "changed",
        "GEMMTUNE_PRELOAD": ",one,two",
    }
    assert (dict(os.environ), tempfile.tempdir) == (before, folder)
    assert start_context([], {"MY_NEW": "new"}) == "spawn"
