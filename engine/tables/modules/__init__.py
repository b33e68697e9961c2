"""Modules of gemmtune as files that run without it: one file, or a package."""
