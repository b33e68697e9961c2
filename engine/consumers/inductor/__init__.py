"""PyTorch Inductor: models captured and timed, and a table that torch.compile loads."""
