"""Times of whole models: eager, compiled, and compiled with a table."""
