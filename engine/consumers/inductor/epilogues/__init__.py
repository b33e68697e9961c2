"""Epilogue that Inductor can fuse into a product, read from the graph it lowers."""
