"""Operands of a problem, the memory they occupy, and the reference result."""
