"""Find the fastest configuration of a GPU kernel for every shape, and ship the answer as a table."""
