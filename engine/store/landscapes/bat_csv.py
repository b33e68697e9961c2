"""Columns of BAT's CSV results, under the names of a landscape file.

BAT (github.com/NTNU-HPC-Lab/BAT, batbench/result) counts in seconds. Its `objective` is the mean launch for one of its
tuners and the sum for others, so the time is the mean of `times.runtimes`.
"""

import json
from collections.abc import Sequence
from math import fsum
from pathlib import Path

from gemmtune.engine.records.errors import LandscapeError
from gemmtune.engine.store.landscapes.csv_cells import LEAST_NS, MOST_NS

_PARAM, _STATUS, _LAUNCHES, _COST = "config.", "validity", "times.runtimes", "times.total_time"
_FAILURES = {"Compile exception": "build_failed: Compile exception", "Config invalid": "invalid: Config invalid"}


class BatColumns:
    """Translation of a BAT file's rows."""

    def __init__(self, file: Path, names: Sequence[str]) -> None:
        self._file = file
        self._params = [place for place, name in enumerate(names) if name.startswith(_PARAM)]
        self._status, self._launches = names.index(_STATUS), names.index(_LAUNCHES)
        self._cost = names.index(_COST) if _COST in names else None
        self.names = [names[place].removeprefix(_PARAM) for place in self._params]
        """Names of a landscape file's columns."""
        self.names += ["status", "time_ms", "times_ms", *(["cost.seconds"] if self._cost is not None else [])]
        its = [*(names[place] for place in self._params), _STATUS, _LAUNCHES, _LAUNCHES, _COST]
        self.own_names = dict(zip(self.names, its, strict=False))
        """Column of the BAT file that each name stands for."""

    @staticmethod
    def are(names: Sequence[str]) -> bool:
        """Return whether these columns are BAT's."""
        return {_STATUS, _LAUNCHES} <= set(names) and any(name.startswith(_PARAM) for name in names)

    def row(self, line: int, cells: Sequence[str]) -> list[str]:
        """Return the cells under `names`; raises LandscapeError if a correct config has no believable launches."""
        status, times = cells[self._status], []
        if status == "Correct":
            try:
                times = [1e3 * seconds for seconds in json.loads(cells[self._launches])]
            except (ValueError, TypeError, OverflowError):
                times = []
            if not times or not all(LEAST_NS <= 1e6 * time <= MOST_NS for time in times):
                found = f"value {cells[self._launches]!r}: expected a list of seconds above 0"
                raise LandscapeError(f"{self._file}, line {line}, column {_LAUNCHES}, {found}")
        word = "ok" if times else _FAILURES.get(status, f"run_failed: {status}")
        time = repr(fsum(times) / len(times)) if times else ""
        cost = [] if self._cost is None else [cells[self._cost]]
        return [*(cells[place] for place in self._params), word, time, ";".join(map(repr, times)), *cost]
