"""Identities of parties: keys, certificates, and the authority that signs them."""
