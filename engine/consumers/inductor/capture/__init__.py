"""Products that a model runs, as Inductor lowers them on a GPU that need not be present."""
