"""Asking a running federation how its parties are, and for predictions."""
