"""One config per kernel that several arms share. Imports torch.

Inductor times two or more configs of most pointwise kernels and reductions when they run first, each for some
milliseconds. With `coordinate_descent_tuning` it goes on from the winner to configs next to it. Two arms of one process
may so run one kernel with different configs, and differ by more than their products do (experiments/models).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

from torch._inductor.runtime.triton_heuristics import CachingAutotuner

_Key = tuple[str, ...]
"""Source of a kernel without its name, the sizes it is tuned for, and the configs that are timed or descended from."""
_BEHIND = 1e6
"""Factor on the time of a config that an earlier arm did not choose."""


class SharedChoices:
    """Configs that the first arm with a kernel chose, for the arms after it.

    Every arm times its kernels as always, so that first calls take as long as they do elsewhere.
    """

    def __init__(self) -> None:
        """Begin without a choice."""
        self._chosen: dict[_Key, str] = {}
        self._descended: dict[_Key, Any] = {}
        self._wanted: str | None = None
        self._takers: list[Any] = []

    @property
    def taken(self) -> int:
        """Kernels of the last arm that took the choice of an earlier one."""
        return len({id(kernel) for kernel in self._takers})

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Run one arm: Inductor chooses what earlier arms chose, and what it chooses anew is kept for the next ones."""
        kernels: Any = CachingAutotuner
        choose, bench, descend = kernels.autotune_to_one_config, kernels.bench, kernels.coordinate_descent_tuning
        self._takers = []
        chosen: dict[_Key, str] = {}
        descended: dict[_Key, Any] = {}

        def race(kernel: Any, *args: object, **kwargs: object) -> None:  # noqa: ANN401 (has no types)
            key = _key(kernel, kernel.launchers)
            self._wanted = self._chosen.get(key)
            if self._wanted is not None:
                self._takers.append(kernel)
            try:
                choose(kernel, *args, **kwargs)
            finally:
                self._wanted = None
            chosen.setdefault(key, str(kernel.launchers[0].config))

        def timed(kernel: Any, launcher: Any, *args: object, **kwargs: object) -> float:  # noqa: ANN401
            its = float(bench(kernel, launcher, *args, **kwargs))
            return its if self._wanted in (None, str(launcher.config)) else its * _BEHIND

        def walk(kernel: Any, launcher: Any, *args: object, **kwargs: object) -> object:  # noqa: ANN401
            key = _key(kernel, [launcher])
            found = descend(kernel, launcher, *args, **kwargs)
            if not getattr(found.config, "found_by_coordesc", False):
                return found  # Inductor does not descend here
            config = self._descended.get(key)
            if config is None:
                descended.setdefault(key, found.config)
                return found
            self._takers.append(kernel)
            if str(config) == str(found.config):
                return found
            with kernel.lock:
                return kernel._precompile_config(config).make_launcher()

        with patch.multiple(kernels, autotune_to_one_config=race, bench=timed, coordinate_descent_tuning=walk):
            yield
        self._chosen, self._descended = chosen | self._chosen, descended | self._descended


def _key(kernel: Any, launchers: Sequence[Any]) -> _Key:  # noqa: ANN401 (have no types)
    """Return what tells a kernel from others; its name counts the kernels before it, and tells nothing."""
    source = kernel.fn.src.replace(kernel.fn.__name__, "kernel")
    return source, str(kernel.size_hints), *sorted(str(launcher.config) for launcher in launchers)
