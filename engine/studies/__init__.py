"""Study samplers on recorded landscapes."""
