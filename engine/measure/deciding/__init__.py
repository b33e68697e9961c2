"""Decide how many launches each config gets, and rank finalists."""
