"""How messages travel: in memory and virtual time."""
