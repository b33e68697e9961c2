"""How tests share a machine: a file's run in one process, and those that need the GPU one after the other.

And how they reach the modules of an experiment.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

EXPERIMENTS = Path(__file__).parents[1] / "experiments"


@pytest.fixture(scope="module")
def modules_of() -> Iterator[Callable[..., SimpleNamespace]]:
    """Imports modules of an experiment, which are no package's: they are forgotten again behind the file's tests."""
    with ExitStack() as stack:

        def imported(experiment: str, *names: str) -> SimpleNamespace:
            stack.enter_context(_forgotten_again(str(EXPERIMENTS / experiment), names))
            return SimpleNamespace(**{name: importlib.import_module(name) for name in names})

        yield imported


@pytest.fixture(autouse=True, scope="module")
def _memory_given_back() -> Iterator[None]:
    """A file's tests give the GPU's memory back: the next one's may be another process's, timed in what is left."""
    yield
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Group them for `--dist loadgroup`: a worker's bench takes much of the GPU's memory, and times what it finds."""
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            group = "gpu" if item.get_closest_marker("gpu") else item.nodeid.partition("::")[0]
            item.add_marker(pytest.mark.xdist_group(group))


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
