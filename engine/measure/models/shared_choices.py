"""One config per kernel that several arms share. Imports torch.

Inductor times two or more configs of most pointwise kernels and reductions when they run first, each for some
milliseconds. Two arms of one process may so run one kernel with different configs, and differ by more than their
products do (experiments/models).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch._inductor.runtime.triton_heuristics import CachingAutotuner

__all__ = ["SharedChoices"]

_Key = tuple[str, ...]
"""Source of a kernel without its name, the sizes it is tuned for, and the configs that are timed."""
_BEHIND = 1e6
"""Factor on the time of a config that an earlier arm did not choose."""


class SharedChoices:
    """Configs that the first arm with a kernel chose, for the arms after it.

    Every arm times its kernels as always, so that first calls take as long as they do elsewhere.
    """

    def __init__(self) -> None:
        """Begin without a choice."""
        self._chosen: dict[_Key, str] = {}
        self._wanted: str | None = None
        self.taken = 0
        """Kernels of the last arm that took the choice of an earlier one."""

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Run one arm: Inductor chooses what earlier arms chose, and what it chooses anew is kept for the next ones."""
        kernels: Any = CachingAutotuner
        choose, bench = kernels.autotune_to_one_config, kernels.bench
        self.taken = 0
        new: dict[_Key, str] = {}

        def chosen(kernel: Any, *args: object, **kwargs: object) -> None:  # noqa: ANN401 (has no types)
            key = _key(kernel)
            self._wanted = self._chosen.get(key)
            self.taken += self._wanted is not None
            try:
                choose(kernel, *args, **kwargs)
            finally:
                self._wanted = None
            new.setdefault(key, str(kernel.launchers[0].config))

        def timed(kernel: Any, launcher: Any, *args: object, **kwargs: object) -> float:  # noqa: ANN401
            its = float(bench(kernel, launcher, *args, **kwargs))
            return its if self._wanted in (None, str(launcher.config)) else its * _BEHIND

        kernels.autotune_to_one_config, kernels.bench = chosen, timed
        try:
            yield
        finally:
            kernels.autotune_to_one_config, kernels.bench = choose, bench
        self._chosen = new | self._chosen


def _key(kernel: Any) -> _Key:  # noqa: ANN401 (has no types)
    """Return what tells a kernel from others; its name counts the kernels before it, and tells nothing."""
    source = kernel.fn.src.replace(kernel.fn.__name__, "kernel")
    return source, str(kernel.size_hints), *sorted(str(launcher.config) for launcher in kernel.launchers)
