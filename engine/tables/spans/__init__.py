"""Spans of sizes that one kernel serves, for the ranges of a table."""
