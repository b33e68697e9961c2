"""Compiled kernels on a GPU: how they are loaded and launched, by spaces and by exported loaders."""
