"""Serving engines' Triton kernels: kinds of workloads, rules, and building from the engines' own source."""
