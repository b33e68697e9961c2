"""Tables for PyTorch Inductor: exporter, loader and guard analysis."""
