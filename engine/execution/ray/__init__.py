"""Run jobs in the actors of a Ray cluster."""
