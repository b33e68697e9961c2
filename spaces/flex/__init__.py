"""Attention: operands with their mask, right results and gradients."""
