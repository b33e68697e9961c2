"""Configs that a person has in mind: read, checked, and measured against the table's row."""
