"""Tables: rows and ranges made from rankings, the table file, exporters, and the loaders for production."""
