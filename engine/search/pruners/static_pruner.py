"""Pruner that drops kernels whose binary spills registers."""

from collections.abc import Sequence

from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.pruner import Candidate, Pruner

MAX_SPILL_BYTES = 64
"""Largest local memory per thread: 16 registers of 4 bytes.

Inductor never runs a template that spills more, by `spill_threshold` in torch/_inductor/config.py (torch 2.11 to 2.15).
"""


class StaticPruner(Pruner):
    """Pruner that drops a built candidate if Inductor would not benchmark it."""

    def judge(self, candidate: Candidate, history: Sequence[Measurement]) -> Verdict:
        """Drop a candidate that spills more than `MAX_SPILL_BYTES`; keep it while its resources are unknown."""
        resources = candidate.artifact.resources if candidate.artifact else None
        if resources is None or resources.spill_bytes <= MAX_SPILL_BYTES:
            return Verdict.yes()
        return Verdict.no("spills", f"{resources.spill_bytes} B spilled per thread > {MAX_SPILL_BYTES} B")
