"""Which config to evaluate next: samplers and pruners."""
