"""Names of the arms: the ways to run one model."""

__all__ = ["ARMS", "BASE", "TABLE_ARMS"]

TABLE_ARMS = ("table", "table+pointwise")
"""Arms with the table; in the second one Inductor tunes the kernels between the products, as its max-autotune does."""
ARMS = ("eager", "compile", "max-autotune", *TABLE_ARMS)
"""Ways to run a model, in the order of a report."""
BASE = "compile"
"""Arm that others are compared with."""
