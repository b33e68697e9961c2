"""Reports of models: what they run, and what a table makes of them."""
