"""What ships: selection of rows, the table file, exporters and the loaders production imports."""
