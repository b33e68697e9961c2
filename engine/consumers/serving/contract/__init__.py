"""Layers, tuned files and sources of vLLM and SGLang, on which their spaces and the files' writers agree."""
