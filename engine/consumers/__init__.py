"""Consumers of a table: one folder for each, with its exporter, loader, checks and parts of reports."""
