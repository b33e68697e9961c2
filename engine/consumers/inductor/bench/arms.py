"""Names of the arms: the ways to run one model."""

TABLE = "table"
"""Arm with the table."""
ARMS = ("eager", "compile", "max-autotune", TABLE)
"""Ways to run a model, in the order of a report."""
BASE = "compile"
"""Arm that others are compared with."""
