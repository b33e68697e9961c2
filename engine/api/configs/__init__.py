"""Configs of one's own, measured against the row."""
