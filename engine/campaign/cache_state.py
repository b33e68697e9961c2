"""Cache state, cold or warm, in the protocols of recordings and objectives."""

from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.seams.objective import Objective

__all__ = ["require_cache_state"]

_OBJECTIVES = {"cold-l2": "latency", "warm-l2": "latency_warm"}
"""Objective that recordings allow, by the cache state that their protocol's name contains."""


def require_cache_state(objective: Objective, name: str, protocol: str, recording: str) -> None:
    """Refuse an objective of another cache state than was recorded; a protocol's name may tell none.

    Args:
        objective: what is minimised.
        name: name of the objective.
        protocol: protocol of the recording.
        recording: what was recorded, for the message.

    Raises:
        UsageError: the cache states differ.
    """
    recorded, wanted = _state(protocol), _state(objective.protocol)
    if recorded and wanted and recorded != wanted:
        raise UsageError(
            f"objective {name} times with protocol {objective.protocol}, and {recording} was recorded with "
            f"{protocol}: measure on a GPU, or minimise {_OBJECTIVES[recorded]}"
        )


def _state(protocol: str) -> str:
    return next((state for state in _OBJECTIVES if state in protocol), "")
