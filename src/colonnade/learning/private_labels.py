"""`label_privacy`: the label holder learns from labels with noise, drawn once for each row.

Whatever it then sends in the training, gradients, dual variables or models, tells no more of a
label than the noise allows. The noise is in `privacy/label_noise.py`. The loss is minus the
logarithm of how likely the evidence of a row is, given the model: for `response` the loss corrected
by the known probabilities of a flip (Patrini et al., 2017, "Making deep neural networks robust to
label noise"); for `alibi` its gradient is that of the cross entropy with the posterior of the
class, whose prior is what the model predicts, as Malek et al. (2021) have it.

Validation and test rows keep their true labels, which only the label holder sees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from colonnade.errors import InputError
from colonnade.learning.state import Value
from colonnade.models.layers import evidence_loss
from colonnade.models.proximal import nearest_by_evidence
from colonnade.network import ABSENT, Network
from colonnade.privacy.label_noise import evidence
from colonnade.privacy.spec import LabelPrivacy

if TYPE_CHECKING:
    from colonnade.learning.algorithm import Algorithm

KEY = "label_privacy"


class PrivateLabels:
    """The evidence of each training row, in place of its label."""

    def __init__(self, algorithm: Algorithm, wanted: LabelPrivacy) -> None:
        self.algorithm, self.wanted = algorithm, wanted
        self.evidence = Value(large=True)  # [label holders here, training rows, classes]
        check_classes(algorithm, KEY)
        check_holders(algorithm, KEY)
        if algorithm.set.pooled:
            raise InputError(
                f"{KEY}: {algorithm.name} has one party, which holds the labels, and nobody to "
                "hide them from; leave it out"
            )
        if algorithm.task.weights is not None:
            raise InputError(
                f"{KEY}: weights = {algorithm.task.weights!r} in [data] counts the true labels of "
                "each class; leave one of the two out"
            )

    def join(self, net: Network) -> None:
        """Draw the noise, and declare what comes of it as state: drawn once more after a crash, it
        would tell the labels twice. Each row has one label holder, so that in a simulation all of
        them can draw from one source."""
        labels, task = self.algorithm.labels, self.algorithm.task
        self.algorithm.keeps(net, KEY, labels, self.evidence)
        if not self.evidence.members:
            return
        y = self.algorithm.data.train.y.clamp(min=0)  # below 0: a row of another label holder
        source = net.secrets(labels.parties[0], KEY)
        known = evidence(self.wanted, y, task.classes, source).to(torch.get_default_dtype())
        self.evidence.set(known.expand(self.evidence.members, -1, -1))

    def begin(self) -> Any:
        """What is learnt from, as the training begins: the evidence of all training rows, where the
        labels are. [rows, classes]"""
        algorithm = self.algorithm
        algorithm.loss, algorithm.proximal = evidence_loss, nearest_by_evidence
        return self.evidence.value[0] if self.evidence.members else ABSENT

    def facts(self) -> dict[str, float]:
        """For the results: of the row whose label most parties hold, each of which draws noise of
        its own."""
        algorithm = self.algorithm
        rows = [algorithm.labelled_by(party) for party in algorithm.labels.parties]
        holders = int(torch.bincount(torch.cat(rows)).max())
        return {"label_epsilon": holders * self.wanted.epsilon}


def check_classes(algorithm: Algorithm, key: str) -> None:
    if not algorithm.task.classes:
        raise InputError(
            f"{key}: hides classes, but the label is a number, for which there is no such "
            "protection. Leave the key out; dvfl and fedonce send nobody what depends on labels"
        )


def check_told(algorithm: Algorithm, key: str) -> None:
    """Refuse what is for gradients of single rows, where nobody is told any."""
    if not algorithm.telling_labels:
        raise InputError(
            f"{key}: {algorithm.name} tells nobody gradients of single rows; leave it out"
        )
    check_classes(algorithm, key)


def check_holders(algorithm: Algorithm, key: str) -> None:
    """Refuse noise that several parties would put on one label, each its own: those who are told
    of all would hear less and less of it."""
    if algorithm.led or not (holders := several_holders(algorithm)):
        return
    reason = (
        "all devices hold the labels, and there is nobody to hide them from; set aggregators = 1"
    )
    if holders < len(algorithm.columns):
        reason = (
            f"{holders} aggregators hold the labels of the same rows, and each would add noise of "
            "its own, which averages out; set aggregators = 1"
        )
    raise InputError(f"{key}: in {algorithm.name} {reason}; or leave it out")


def several_holders(algorithm: Algorithm) -> int:
    """How many column holders hold labels; 0 for one."""
    labels = algorithm.labels.parties
    count = sum(party in labels for party in algorithm.columns.parties)
    return count if count > 1 else 0
