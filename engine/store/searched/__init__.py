"""Measurements of searches, which ship with gemmtune; README.md beside this file says how each was made."""
