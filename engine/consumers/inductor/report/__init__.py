"""Reports of models: what they run, what a table makes of them, and why a row is not used."""
