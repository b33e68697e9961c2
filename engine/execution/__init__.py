"""Run build and measurement jobs: on this machine, on a Ray cluster, or from landscapes and models."""
