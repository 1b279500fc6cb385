"""Predictions over HTTP, at a party that may ask for them: `colonnade serve`."""
