"""gemmtune's engine: search, measuring, storage and tables. Importing it loads no torch, triton, cutlass or ray."""
