"""Records that flow through gemmtune: frozen data without machinery, one record per file."""
