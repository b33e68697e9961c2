"""Rules and results that the spaces of several families share."""
