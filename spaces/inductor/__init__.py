"""Spaces of Inductor's Triton templates: rules, rendering, building and launching."""
