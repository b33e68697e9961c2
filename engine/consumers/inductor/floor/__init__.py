"""Least time of a model: its flops and bytes at the rates of a GPU, by kernel."""
