"""Which rows two parties have in common, found without showing the others: keys and protocols."""
