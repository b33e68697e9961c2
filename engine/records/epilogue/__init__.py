"""Epilogues: pointwise operations that Inductor computes in a product's kernel, before it stores the result."""
