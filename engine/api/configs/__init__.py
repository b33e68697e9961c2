"""One config: measured against the table's row, and had as code."""
