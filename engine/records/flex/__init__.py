"""Attention by flex_attention: its sizes, and its functions of mask and score."""
