"""A real federation: one process per party, and the certificates by which they know each other."""
