"""Sources, file names and tuned files of serving engines on this host."""
