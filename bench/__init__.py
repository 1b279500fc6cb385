"""Side-by-side benchmarks, each against the way a researcher would write it: `python -m bench`."""
