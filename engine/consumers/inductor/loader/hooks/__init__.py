"""Places in torch that the loader changes, and what it puts there."""
