"""Plug-in of vLLM for tuned products of 8-bit floats: its exporter, and the loader that an export contains."""
