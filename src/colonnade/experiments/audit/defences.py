"""Every method of an experiment once more with each defence that suits it, at a usual strength."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from colonnade.data import load
from colonnade.errors import InputError
from colonnade.experiments.config import Experiment
from colonnade.experiments.run import reason_against
from colonnade.learning.settings import Settings
from colonnade.privacy.spec import Hide, LabelPrivacy, Noise

DEFENCE = " + "  # between the name of a method and that of a defence
# By name, as keys of a method; what helps whom is in docs/explanation/audit.md.
DEFENCES: Mapping[str, Mapping[str, Any]] = {
    "hide_labels 40": {"hide_labels": Hide(strength=40.0)},
    "Marvell 8": {"hide_labels": Hide(how="marvell", strength=8.0)},
    "max_norm": {"hide_labels": Hide(how="max_norm")},
    "label_privacy 1": {"label_privacy": LabelPrivacy(epsilon=1.0)},
    "ALIBI 3": {"label_privacy": LabelPrivacy(epsilon=3.0, how="alibi")},
    "noise 0.1": {"noise": Noise(clip=1.0, sigma=0.1)},
    "decorrelate 0.1": {"decorrelate": 0.1},
    "narrow": {"encoder": [0.75, 0.125]},
    "int8": {"wire": "int8"},
}


def with_defences(experiment: Experiment) -> tuple[Experiment, list[str]]:
    """The experiment with the defended methods, and sentences about defences that do not suit."""
    data, seed = load(experiment.data, experiment.seeds[0]), experiment.seeds[0]
    methods, refused = list(experiment.methods), dict[tuple[str, str], list[str]]()
    for method in experiment.methods:
        for name, defended in _defended(method, {one.name for one in methods}):
            if reason := reason_against(defended, data, seed, experiment.network.delays):
                refused.setdefault((name, reason), []).append(method.name)
            else:
                methods.append(defended)
    if len(methods) == len(experiment.methods):
        raise InputError("--defences: none suits any of the methods, or all have them already")
    sayings = [f"{name}: not for {', '.join(of)}: {why}" for (name, why), of in refused.items()]
    return msgspec.structs.replace(experiment, methods=tuple(methods)), sayings


def _defended(method: Settings, names: set[str]) -> Iterator[tuple[str, Settings]]:
    """A method with each defence that it has no key of yet. One that is a defended method itself,
    by its name, is left alone."""
    if DEFENCE in method.name:
        return
    for name, keys in DEFENCES.items():
        title = f"{method.name}{DEFENCE}{name}"
        if title not in names and all(getattr(method, key) is None for key in keys):
            yield name, msgspec.structs.replace(method, name=title, **keys)
