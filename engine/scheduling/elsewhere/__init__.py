"""Searches in processes of their own."""
