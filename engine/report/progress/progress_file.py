"""Keep a running campaign's progress in a file beside its database, for `gemmtune campaigns`."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from gemmtune.engine.io.reading import parse_json, read_text
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.report.progress.state import CampaignState
from gemmtune.engine.scheduling.callbacks import Callback
from gemmtune.engine.seams.codec import Malformed, decoded, encoded
from gemmtune.engine.seams.executor import Load
from gemmtune.engine.store.files import write_whole

PROGRESS_FILE = "progress.json"
"""Name of the file; a campaign that ends removes it, one that is stopped leaves it."""
_WRITE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a campaign's current searches."""

    done: int = field(metadata={"least": 0})
    """Evaluations that are done, with those the database answered."""
    total: int = field(metadata={"least": 0})
    """Evaluations that all searches may spend."""
    seconds_left: float | None = field(metadata={"least": 0})
    """Seconds until the searches end, at the rate so far; None before the first new evaluation."""
    at: str
    """UTC time of writing, ISO 8601 with seconds; a campaign that runs writes every second."""


@contextmanager
def keep_progress(folder: Path, state: CampaignState) -> Iterator[Callback]:
    """Keep a campaign's state in a folder while the block runs.

    Yield the callback to give to the campaign, behind its state.
    """
    path = folder / PROGRESS_FILE
    yield _ProgressWriter(state, path)
    path.unlink(missing_ok=True)


def read_progress(folder: Path) -> Progress | None:
    """Return the progress in a folder; None where there is none, or it is damaged."""
    path = folder / PROGRESS_FILE
    try:
        found = decoded(Progress, parse_json(read_text(path, "progress"), str(path)), further=True)
        at = datetime.fromisoformat(found.at).astimezone(UTC)
        return replace(found, at=at.isoformat(timespec="seconds"))
    except (UsageError, Malformed, ValueError):
        return None


class _ProgressWriter(Callback):
    """Writes a campaign's state to a file, at most once per second."""

    def __init__(self, state: CampaignState, path: Path) -> None:
        self._state = state
        self._path = path
        self._written: float | None = None

    def on_load(self, load: Load | None, seconds_left: float | None) -> None:
        """Write the progress, unless it was written a moment ago."""
        state = self._state
        now = state.clock()
        if self._written is not None and now - self._written < _WRITE_SECONDS:
            return
        self._written = now
        left = state.seconds / state.new * (state.total - state.done) if state.new else None
        if left is not None and seconds_left is not None:
            left = min(left, max(seconds_left, 0.0))
        try:
            progress = Progress(state.done, state.total, left, datetime.now(UTC).isoformat(timespec="seconds"))
            write_whole(self._path, json.dumps(encoded(progress)).encode())
        except UsageError:
            return  # the campaign itself says what is wrong with its folder
