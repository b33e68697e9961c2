"""Graphs that Inductor compiled: the layers of a model, and the guards that choose a graph."""
