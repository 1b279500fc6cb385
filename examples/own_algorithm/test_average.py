"""The algorithm test kit on an algorithm from outside the package."""

from average import Average

from colonnade.testing import AlgorithmKit


class TestAverage(AlgorithmKit):
    algorithm = Average
