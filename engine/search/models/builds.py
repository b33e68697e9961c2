"""What the compiler makes of configs: as it was seen, and else as it is to be expected."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gemmtune.engine.records.artifact import Resources
from gemmtune.engine.search.models.coordinates import Reals
from gemmtune.engine.search.models.trees import predicted

__all__ = ["builds"]

# Chosen by experiments/search (README, Registers and spills).
_TREES = 3
_LEAF = 2
_LEAST = 8
"""Builds under which there is nothing to learn from."""


def builds(columns: Reals, resources: Sequence[Resources | None], seed: int) -> Reals:
    """Logarithms of the registers and the spilled bytes a thread, rows × 2; rows × 0 where too few are known.

    What was built is as it was recorded, and the rest as trees expect it. A few large ones do: a compiler repeats
    itself, so there is no noise to average away.

    Args:
        columns: what the compiler is given, rows × names: the parameters, and such facts as types and alignment.
        resources: of each row, None where nobody built it.
        seed: of the trees.
    """
    built = np.array([found is not None for found in resources])
    if built.sum() < _LEAST:
        return np.empty((len(columns), 0))
    known = np.log2([(1 + found.registers, 1 + found.spill_bytes) for found in resources if found is not None])
    values: Reals = np.empty((len(columns), known.shape[1]))
    values[built] = known
    if not built.all():
        values[~built] = predicted(
            columns[built], known, columns[~built], trees=_TREES, leaf=_LEAF, share=1.0, seed=seed
        )
    return values
