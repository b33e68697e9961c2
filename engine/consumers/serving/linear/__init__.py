"""Plug-ins of vLLM and SGLang for tuned products of 8-bit floats: their exporters, and the loader of an export."""
