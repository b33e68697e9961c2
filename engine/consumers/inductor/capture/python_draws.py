"""Numbers that a model draws by Python's `random` or numpy: no tensor has them, and the capture has one draw."""

import contextlib
import random
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

from gemmtune.engine.io.blame import line_above


class DrawsOfPython:
    """Numbers that Python's `random` and numpy draw from the generators that a process shares."""

    def __init__(self) -> None:
        """Take what was drawn before for given."""
        self._before = self._states()

    def lines(self, call: Callable[[], object]) -> Counter[str]:
        """Return the places that drew since, and how often: those of another run of `call`, which may fail."""
        found = Counter[str]()
        if self._states() == self._before:
            return found

        def seen(function: Callable[..., Any], *args: Any, **named: Any) -> Any:  # noqa: ANN401 (as the function)
            found[line_above() or "a package"] += 1
            return function(*args, **named)

        with contextlib.ExitStack() as stack:
            for module in filter(None, (random, getattr(sys.modules.get("numpy"), "random", None))):
                shared = module.random.__self__
                for name, function in [*vars(module).items()]:
                    if name != "seed" and getattr(function, "__self__", None) is shared:
                        stack.enter_context(patch.object(module, name, partial(seen, function)))
            stack.enter_context(contextlib.suppress(Exception))
            call()
        return found or Counter({"a place that took the function by its name": 1})

    @staticmethod
    def _states() -> object:
        numpy: Any = sys.modules.get("numpy")
        key, place = numpy.random.get_state()[1:3] if numpy else (b"", 0)
        return random.getstate(), bytes(key), place
