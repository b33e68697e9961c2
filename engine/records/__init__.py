"""What flows through gemmtune, one file a record: frozen data, no machinery."""
