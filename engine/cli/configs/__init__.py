"""The commands of one config: measure it, and print it as code."""
