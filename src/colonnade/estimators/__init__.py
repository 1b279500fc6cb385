"""Algorithms of Colonnade as scikit-learn estimators."""
