"""What production imports: files that are copied beside their table and need nothing else of gemmtune."""
