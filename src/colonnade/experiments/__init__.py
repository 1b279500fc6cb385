"""Experiment files, the runner, results and reports."""
