"""Read and write landscapes: recorded spaces with the outcome of every config."""
