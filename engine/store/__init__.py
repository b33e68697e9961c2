"""Store and read measurements: the database, and landscape files."""
