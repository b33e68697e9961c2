"""Configs of vLLM's batch-invariant product of 16-bit matrices."""
