from average import Average

from colonnade.testing import AlgorithmKit


class TestAverage(AlgorithmKit):
    algorithm = Average
