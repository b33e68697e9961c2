"""Read and write recorded landscapes."""
