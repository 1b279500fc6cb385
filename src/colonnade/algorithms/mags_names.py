"""The names by which the paper of MAGS calls its methods, as settings of mags.py."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from colonnade.errors import InputError

if TYPE_CHECKING:
    from colonnade.algorithms.mags_settings import MAGSSettings

NAME = re.compile(
    r"(?:(?P<drop>CD|PD)-)?(?:(?P<few>[1-9]\d*)-)?(?P<kind>VFL|MVFL)(?:-G(?P<gossip>\d+))?"
)
DROPOUT = 0.3  # of the methods whose name begins with CD- or PD-


def written_out(settings: MAGSSettings, method: str) -> MAGSSettings:
    """The settings with the keys that a name stands for. Keys that were given may not say anything
    else."""
    meant = meaning(method, settings.dropout)
    usual = {f.name: f.default for f in msgspec.structs.fields(settings)}
    for key, value in meant.items():
        if getattr(settings, key) not in (usual[key], value):
            raise InputError(
                f"{key} = {getattr(settings, key)!r}: but method = {method!r} means {value!r}"
            )
    return msgspec.structs.replace(settings, **meant)


def meaning(method: str, dropout: float) -> dict[str, Any]:
    """The keys that a name stands for. `dropout` is the share that is left out if it was given (not
    0): a name says of what, and only the usual share."""
    found = NAME.fullmatch(method)
    if not found or (found["kind"] == "VFL" and found["few"]):
        raise InputError(
            f"method = {method!r}: expected a name such as VFL, PD-VFL, MVFL, 4-MVFL-G2 "
            "or CD-MVFL-G4"
        )
    few = 1 if found["kind"] == "VFL" else found["few"] and int(found["few"])
    meant = {"aggregators": few or "all", "gossip": int(found["gossip"] or 0), "dropout": 0.0}
    if found["drop"]:
        meant["dropout"] = dropout or DROPOUT
        meant["dropout_kind"] = "party" if found["drop"] == "PD" else "communication"
    return meant
