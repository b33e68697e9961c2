"""Show how far a running campaign is."""
