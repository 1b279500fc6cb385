"""Noise on what leaves a party, and what it is worth: clipping, Gaussian noise, accountants."""
