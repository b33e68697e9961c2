"""What gemmtune remembers: the measurement database and recorded landscapes."""
