"""`colonnade audit`: what each receiver can infer from what it got in a training."""
