"""Numbers of compiled products by what they run. Needs the standard library alone.

`gemmtune_report`, which the export has beside the loader, keeps their names and reasons, too, and warns of misses.
"""

import warnings
from collections import Counter
from threading import Lock
from typing import Any


class Counts:
    """Products of one table, by all threads of the process."""

    def __init__(self, device: str, miss: str, unused: str = "") -> None:
        """Begin for a table of a GPU; `miss` is that of `install`, `unused` why this torch uses no table, if so."""
        self.device, self.miss, self.unused = device, miss, unused
        self._lock, self._numbers, self._warned = Lock(), Counter[str](), set[str]()

    def record(self, outcome: str, *_: Any, **__: Any) -> None:  # noqa: ANN401 (what `gemmtune_report` records)
        """Count a product that was lowered."""
        with self._lock:
            self._numbers[outcome] += 1

    def see_graph(self, graph: Any) -> None:  # noqa: ANN401 (Inductor's GraphLowering)
        """Count nothing when the lowering of a graph begins."""

    def warn(self, message: str) -> None:
        """Warn, unless this table has said it."""
        if message not in self._warned:
            self._warned.add(message)
            warnings.warn(message, stacklevel=2)

    def report(self) -> Any:  # noqa: ANN401 (that of `gemmtune_report`)
        """Refuse, with the numbers alone."""
        numbers = ", ".join(f"{outcome}: {number}" for outcome, number in self._numbers.items())
        found = self.unused or f"compiled products by use: {numbers or 'none'}"
        raise RuntimeError(f"a report needs gemmtune_report, which the export has beside this package; {found}")
