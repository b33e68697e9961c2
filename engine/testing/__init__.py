"""Conformance suites: what every plug-in of a seam must do, run over all registered ones."""
