from veiled import Veiled

from colonnade.testing import AlgorithmKit


class TestVeiled(AlgorithmKit):
    algorithm = Veiled
