"""Numbers, files and output of the outside world: the one place that checks each."""
