"""The algorithm test kit on algorithms from outside the package."""

from average import Average
from veiled import Veiled

from colonnade.testing import AlgorithmKit


class TestAverage(AlgorithmKit):
    algorithm = Average


class TestVeiled(AlgorithmKit):
    algorithm = Veiled
