"""Show the progress of a running campaign."""
