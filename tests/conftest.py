"""Share the machine between tests, and import the modules of experiments.

`make test` runs the tests of one file in one process, and the files that take longest first. Mark what takes longer
than 5 seconds, with the seconds it takes on a core of its own:

    pytestmark = pytest.mark.slow(20)   a file whose tests share a fixture: it stays together and starts early
    @pytest.mark.slow(20)               a test, or a case of `parametrize`, that runs apart from the rest of its file
    slow(20, together="probes")         a file that uses `probe` or a pool of builders: both fork off an imported torch
    slow(20, together="commands")       a file that shares the server of `served`
    slow(20, together="waiting")        a file that leaves the cores idle: one process waits, and the others fill them
    slow(20, together="ray")            a file of Ray, which does so too

Tests that need the GPU run one after the other, in one process.
"""

from __future__ import annotations

import gc
import importlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sqlalchemy.engine.interfaces import DBAPIConnection
    from sqlalchemy.pool import ConnectionPoolEntry

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
SERVED = Path(__file__).with_name("served")
# In each new cache folder Inductor would first compile C++ headers, and programs that try the CPU's instructions; each
# process that compiles would start workers that import torch. All cost more than the few kernels of a test.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
os.environ.setdefault("TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS", "0")
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
# The threads of one small product wait for each other in busy loops, which costs more than it where cores are shared.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Torch writes each graph and each step of a compilation as text where anyone listens, and pytest listens to all logs.
logging.getLogger("torch.__trace").addHandler = lambda _: None
_TORCH = find_spec("torch")
_NO_BYTECODE = _TORCH is not None and not Path(str(_TORCH.origin)).with_name("__pycache__").exists()
# The first process that imports torch makes the folder, so the processes of xdist are told what was there before them.
_NO_BYTECODE = os.environ.setdefault("_GEMMTUNE_NO_BYTECODE", str(_NO_BYTECODE)) == "True"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_NO_BRACKETS = str.maketrans("[]@", "()_")  # xdist looks for a group behind the last bracket


@pytest.fixture(scope="module")
def modules_of() -> Iterator[Callable[..., SimpleNamespace]]:
    """Import modules of an experiment, which belong to no package; they are forgotten after the file's tests."""
    with ExitStack() as stack:

        def imported(experiment: str, *names: str) -> SimpleNamespace:
            stack.enter_context(_forgotten_again(str(EXPERIMENTS / experiment), names))
            return SimpleNamespace(**{name: importlib.import_module(name) for name in names})

        yield imported


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Serve commands that need not start from nothing; return the folder of `gemmtune` and `python`, see served/."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "bin").symlink_to(Path(sys.executable).parent)
    for name in ("gemmtune", "python"):
        (folder / name).write_text(f"#!{sys.executable} -IS\n{(SERVED / 'client.py').read_text()}")
        (folder / name).chmod(0o700)
    command = [sys.executable, "-P", "-W", "ignore", SERVED / "server.py", folder / "socket"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout.readline() == b"ready\n"
        yield folder
        server.stdin.close()


@pytest.fixture(scope="session")
def probe() -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Return a function that runs a file in a process with torch, in a folder of its own; see engine/probe_server."""
    if find_spec("torch") is None or find_spec("triton") is None:
        pytest.skip("torch or triton is not installed")
    command = [sys.executable, "-W", "ignore", str(Path(__file__).parent / "engine/probe_server.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:

        def run(file: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
            settings = {f"{name}_CACHE_DIR": str(folder / f"{name} cache") for name in ("TORCHINDUCTOR", "TRITON")}
            asked = {"file": str(file), "arguments": arguments, "folder": str(folder), "settings": settings}
            server.stdin.write(f"{json.dumps(asked)}\n")
            server.stdin.flush()
            status = int(server.stdout.readline())
            printed = [(folder / name).read_text() for name in ("stdout", "stderr")]
            return subprocess.CompletedProcess([str(file), *arguments], status, *printed)

        yield run
        server.stdin.close()


@pytest.fixture(autouse=True, scope="session")
def _commands_built_once() -> Iterator[None]:
    """Keep the parser of the command line, which typer would build again for each command that a test runs."""
    import typer.main  # by then whoever runs commands has imported it

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", cache(typer.main.get_command))
        yield


@pytest.fixture(autouse=True, scope="session")
def _landscapes_read_once() -> Iterator[None]:
    """Keep the landscapes that tests read: their campaigns take turns with more problems than one program has."""
    from gemmtune.engine.store.landscapes import landscape_file

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(landscape_file, "_parsed", lru_cache(100)(landscape_file._parsed.__wrapped__))
        yield


@pytest.fixture(autouse=True, scope="session")
def _disks_not_waited_for() -> Iterator[None]:
    """Have nothing wait until a disk has it: what is stored outlives this process all the same, if not the machine."""
    from gemmtune.engine.store import dialects

    configure = dialects._configure_sqlite

    def configured(connection: DBAPIConnection, entry: ConnectionPoolEntry) -> None:
        configure(connection, entry)
        connection.cursor().execute("PRAGMA synchronous=OFF")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dialects, "_configure_sqlite", configured)
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def _builders_imported_once() -> Iterator[None]:
    """Have the fork server import what the builders of every space do: a process has one, of its first pool's imports.

    A builder whose imports the server lacks makes them itself, 2 to 5 s for each pool. A server that earlier tests
    started for other imports is replaced.
    """
    from multiprocessing import forkserver

    from gemmtune.engine.measure import builder
    from gemmtune.engine.processes import child_process, process_pool
    from gemmtune.engine.seams import registry
    from gemmtune.engine.seams.space import Space

    every = registry.preload(registry.names(Space))
    has_all = False

    def start_context(preload: Sequence[str], environment: Mapping[str, str]) -> child_process.Context:
        nonlocal has_all
        if not has_all and {*every} & {*preload}:
            vars(forkserver)["_forkserver"]._stop()
            preload, has_all = [*preload, *every], True
        return child_process.start_context(preload, environment)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_pool, "start_context", start_context)
        patch.setattr(builder, "start_context", start_context)
        yield


@pytest.fixture(autouse=True, scope="module")
def _memory_given_back() -> Iterator[None]:
    """Give the GPU's memory back after a file: the next one may run in another process and be timed in what is left."""
    yield
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()


@pytest.fixture(autouse=True, scope="module")
def _process_as_before() -> Iterator[None]:
    """Forget the folders that a file added to `sys.path`, and check that it left Inductor's choices as they were."""
    path = [*sys.path]
    yield
    sys.path[:] = path
    virtualized = sys.modules.get("torch._inductor.virtualized")
    if virtualized is not None:
        left = type(virtualized.V.choices).__name__
        assert left == "InductorChoices", f"this file left {left} installed in Inductor; its loader has uninstall()"


@pytest.fixture(autouse=True, scope="session")
def _constants_read_once() -> Iterator[None]:
    """Keep the constants that Hypothesis found in the modules of the collection.

    It would read every module that tests import later, and generate other examples than where fewer tests ran before.
    """
    providers = sys.modules.get("hypothesis.internal.conjecture.providers")
    with pytest.MonkeyPatch.context() as patch:
        if providers is not None:
            found = providers._get_local_constants()
            patch.setattr(providers, "_get_local_constants", lambda: found)
        yield


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    """Restore the handlers of signals: a command that was stopped ignores them, and so would every later child."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def default_signals(_signals_as_before: None) -> None:
    """Handle signals as in a terminal, here and in children: a background job and `nohup` have some ignored."""
    for number in _SIGNALS:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Let the first process of xdist compile what tests import, where packages were installed without bytecode."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    factory: pytest.TempPathFactory = vars(session.config)["_tmp_path_factory"]
    collected = factory.getbasetemp().parent / "collected"  # a folder of this run's processes
    until = time.monotonic() + 60
    while worker not in ("", "gw0") and _NO_BYTECODE and not collected.exists() and time.monotonic() < until:
        time.sleep(0.1)
    gc.disable()  # what is imported stays: looking through it takes a seventh of the time, and finds nothing
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        gc.set_threshold(50_000, 20, 50)  # torch makes a million objects, and a search through them finds few cycles
        if worker == "gw0":
            collected.touch()


@pytest.hookimpl(tryfirst=True)  # before xdist, which writes the groups into the tests' names
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Name the group of each test for `--dist loadgroup`, and put the groups that take longest first."""
    if not getattr(config.option, "loadgroup", False):
        return
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        groups.setdefault(_group(item), []).append(item)
    for group, members in groups.items():
        for item in members:
            item.add_marker(pytest.mark.xdist_group(group))
    items[:] = [item for members in sorted(groups.values(), key=_seconds, reverse=True) for item in members]


def _group(item: pytest.Item) -> str:
    """Return the tests' group: tests of one group run one after the other in one process.

    Benches on a GPU take much of its memory and would disturb each other's times.
    """
    if item.get_closest_marker("gpu"):
        return "gpu"
    together = next((mark.kwargs["together"] for mark in item.iter_markers("slow") if mark.kwargs), "")
    if together:
        return together
    alone = any(mark.name == "slow" for mark in item.own_markers)
    return item.nodeid.translate(_NO_BRACKETS) if alone else item.nodeid.partition("::")[0]


def _seconds(group: list[pytest.Item]) -> float:
    """Return about how long a group takes: what its `slow` marks say, and 0.1 s for each test without one."""
    marked = {node: mark.args[0] for item in group for node, mark in item.iter_markers_with_node("slow")}
    return 0.1 * len(group) + sum(marked.values())


@contextmanager
def _forgotten_again(folder: str, names: tuple[str, ...]) -> Iterator[None]:
    before = {name: sys.modules.pop(name, None) for name in names}
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
        for name, module in before.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module
