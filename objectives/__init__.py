"""Objectives, one file an objective."""
