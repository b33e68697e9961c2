"""Orders that a running campaign obeys."""

from collections.abc import Sequence
from dataclasses import dataclass

from gemmtune.engine.records.workload import Workload


@dataclass(slots=True)
class Orders:
    """State that people ask of a running campaign; a callback changes it, and the campaign looks twice per second.

    A paused campaign submits nothing. What its executor has ends and is stored, and so it keeps no claim. A cancelled
    one ends so, too, and holds no further final: its table has what is done.
    """

    is_paused: bool = False
    """Whether nothing is to be submitted; the time limits stand still meanwhile."""
    is_cancelled: bool = False
    """Whether searching is to end."""
    added: Sequence[Workload] = ()
    """Problems to search once the plan's have ended, each once."""
    takes_problems: bool = True
    """Whether a problem that is added now is still searched; the campaign says so."""
