"""Tables of the serving engines: their files read, audited, and written from a gemmtune table."""
