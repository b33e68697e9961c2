"""What is known of serving engines on this host: their sources, file names and tuned files."""
