"""`label_privacy`: training labels with differential privacy. Noise is put on each label once, and
nothing but the noisy label is used for learning.

`response` (Warner, 1965): the class is replaced by another one, each equally likely, so often that
the ratio of any two probabilities is at most e^ε. `alibi` (Malek et al., 2021, "Antipodes of label
differential privacy: PATE and ALIBI"): Laplace noise of scale 2/ε is added to each number of the
label's one-hot code, which two labels differ in by 2 in total.

In both cases what is known of a row is its evidence: by class, the logarithm of how likely the
noisy label is, up to a constant. Neighbouring are two tables that differ in the label of one row;
δ is 0. What is computed from the evidence costs no more privacy, however many epochs it is used in.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from colonnade.common.randomness import Randomness
from colonnade.privacy.noise import uniform
from colonnade.privacy.spec import LabelPrivacy


def evidence(wanted: LabelPrivacy, labels: Tensor, classes: int, source: Randomness) -> Tensor:
    """What is known of each row after noise, as logarithms that add up to probability 1.
    labels [rows] → [rows, classes], float64"""
    told = response if wanted.how == "response" else laplace
    return told(labels, classes, wanted.epsilon, source).log_softmax(1)


def response(labels: Tensor, classes: int, epsilon: float, source: Randomness) -> Tensor:
    """The class as told, with a weight of ε. [rows, classes]"""
    drawn = uniform(source, 2, len(labels))
    truthful = 1 / (1 + (classes - 1) * math.exp(-epsilon))
    other = (drawn[1] * (classes - 1)).long().clamp(max=classes - 2)  # of those after the true one
    told = torch.where(drawn[0] <= truthful, labels, (labels + 1 + other) % classes)
    return epsilon * F.one_hot(told, classes).double()


def laplace(labels: Tensor, classes: int, epsilon: float, source: Randomness) -> Tensor:
    """How likely the noisy one-hot code is, by class. [rows, classes]"""
    scale = 2 / epsilon
    drawn = uniform(source, 2, len(labels), classes).log()  # minus two exponential numbers
    told = F.one_hot(labels, classes) + scale * (drawn[0] - drawn[1])
    return (told.abs() - (told - 1).abs()) / scale
