"""CuTe dispatchers of cutlass.operators and QuACK: a table's exporter and loaders."""
