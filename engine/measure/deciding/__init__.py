"""Decide how many launches a config gets and which finalist wins."""
