"""Colonnade: vertical federated learning that keeps standing when columns fall."""
