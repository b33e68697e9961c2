"""Verdicts on the boards that measured, and the withdrawn rows of those that are not believed."""
