"""Functions of torch that a table replaces while it is installed. Needs the standard library alone."""

from collections.abc import Callable, MutableMapping
from typing import Any


class Replaced:
    """Replacements of one install.

    The program may replace a function, too. One from before is called, and put back; one from after stays in place, and
    may still call ours, which `is_undone` tells to change nothing.

    Attributes:
        is_undone: whether `undo` was called.
    """

    def __init__(self) -> None:
        self.is_undone = False
        self._undo: list[Callable[[], None]] = []

    def attribute(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:  # noqa: ANN401 (a module or class)
        """Replace a function by what `make` returns for it; do nothing if there is none."""
        earlier = getattr(owner, name, None)
        if earlier is None:
            return
        ours = make(earlier)
        setattr(owner, name, ours)
        self._undo.append(lambda: setattr(owner, name, earlier) if getattr(owner, name, None) is ours else None)

    def item(self, mapping: MutableMapping[Any, Any], key: object, ours: object) -> None:
        """Put a value into a mapping, in the place of the one that is there, if any."""
        earlier = {key: mapping[key]} if key in mapping else {}
        mapping[key] = ours

        def undo() -> None:
            if mapping.get(key) is ours:
                del mapping[key]
                mapping.update(earlier)

        self._undo.append(undo)

    def undo(self) -> None:
        """Put back what was there, where nobody has replaced ours."""
        self.is_undone = True
        for each in reversed(self._undo):
            each()
