"""Tables for CuTe dispatchers: exporter and loaders."""
