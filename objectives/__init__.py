"""Objectives: one file per objective."""
