"""Tables: rows and ranges made from rankings, the table file, and what exporters share."""
