"""What production imports: one self-contained file a consumer, which needs nothing else of gemmtune."""
