"""Layers that a serving engine runs of a model, from the model's config.json."""
