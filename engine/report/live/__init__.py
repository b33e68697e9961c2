"""Page of a running campaign, and the server on this machine that shows it."""
