"""The networks that settings describe: encoders (and decoders) of the column holders and heads of
the label holder."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from colonnade.common.seeds import seeded
from colonnade.errors import InputError
from colonnade.learning.settings import Polynomial
from colonnade.learning.task import Task
from colonnade.models.factories import Factory, Maker
from colonnade.models.layers import cnn, mlp, output_width, polynomial

CNN_WIDTH = 64
EXAMPLES = {
    "encoder": "encoder=lambda width: nn.Sequential(nn.Linear(width, 32), nn.ReLU())",
    "head": "head=lambda width, classes: nn.Linear(width, classes)",
    "decoder": "decoder=lambda code, width: nn.Linear(code, width)",
}


def default_encoder(width: int) -> list[int]:
    """The proportions of DVFL's MNIST clients (196 → 100 → 80), not narrower than 32 → 16."""
    return [max(32, round(width * 100 / 196)), max(16, round(width * 80 / 196))]


def default_head(width: int) -> list[int]:
    """The proportions of DVFL's host encoder and owner (320 → 200 → 160 → 160 → 40) for joined
    embeddings of its size. On fewer numbers so many layers overfit (digits: 0.91, one: 0.97)."""
    if width < 256:
        return [64]
    half = width // 2
    return [(width + 3 * half) // 4, half, half, 40]


def encoder_layers(spec: Sequence[float] | None, width: int) -> list[int]:
    """Layer widths for a party with `width` columns; numbers below 1 are shares of them."""
    if spec is None:
        return default_encoder(width)
    _check_list("encoder", spec)
    return [max(1, int(w * width)) if w < 1 else int(w) for w in spec]


def make_encoder(
    spec: Any,
    width: int,
    shape: tuple[int, ...],
    hidden: Callable[[], nn.Module] = nn.LeakyReLU,
    parties: float = 1,
) -> nn.Module:
    """`spec`: layer widths, "cnn", a `Polynomial`, a factory `width → Module`, or None for the
    default. `parties`: so many encoders are averaged, where they are polynomials; of N that are
    added, 1/N."""
    if callable(spec):
        return _from_factory("encoder", spec, width)
    if isinstance(spec, Polynomial):
        return polynomial(width, spec.width, spec.degree, parties, spec.clip)
    if spec == "cnn":
        return cnn(shape, CNN_WIDTH)
    return mlp([width, *encoder_layers(spec, width)], hidden=hidden, last=nn.ReLU)


def make_decoder(spec: Any, encoder: Any, code: int, shape: tuple[int, ...]) -> nn.Module:
    """Encodings of width `code` back to inputs. `spec`: hidden widths, a factory `(code, width) →
    Module`, or None: the encoder's layers mirrored, or one between where it has none to mirror."""
    width = math.prod(shape)
    if callable(spec):
        return _from_factory("decoder", spec, code, width)
    if spec is None and (encoder is None or isinstance(encoder, list)):
        spec = encoder_layers(encoder, width)[-2::-1]
    hidden = [(code + width) // 2] if spec is None else spec
    # Pixels lie between 0 and 1; standardised columns anywhere.
    return mlp([code, *hidden, width], last=nn.Sigmoid if len(shape) == 3 else None)


def make_head(spec: Any, width: int, classes: int) -> nn.Module:
    """`spec`: hidden widths, a factory `(width, classes) → Module`, or None for the default."""
    if callable(spec):
        return _from_factory("head", spec, width, classes)
    if spec is not None:
        _check_list("head", spec)
    widths = default_head(width) if spec is None else spec
    return mlp([width, *widths, classes])


def _check_list(key: str, spec: Any) -> None:
    if not isinstance(spec, list | tuple):
        raise InputError(
            f"{key}: got {spec!r}, expected a list of widths, e.g. [64, 32], or a factory, e.g. "
            f"{EXAMPLES[key]}"
        )


def _from_factory(key: str, factory: Callable[..., Any], *args: int) -> nn.Module:
    """What a user's own factory makes; what is no factory is told with an example."""
    if isinstance(factory, nn.Module):
        raise InputError(
            f"{key}: got a module ({type(factory).__name__}), expected a factory, because each "
            f"party gets a module of its own; e.g. {EXAMPLES[key]}"
        )
    try:
        inspect.signature(factory).bind(*args)
    except ValueError:  # a signature that Python cannot tell
        pass
    except TypeError as error:
        raise InputError(
            f"{key}: the factory cannot be called with {len(args)} number(s) ({error}); expected "
            f"e.g. {EXAMPLES[key]}"
        ) from None
    maker = factory if isinstance(factory, Maker) else Maker(key, key, factory)
    return maker(*args)


def check_one_width(combine: str, spec: Any, task: Task) -> None:
    """Embeddings that are not joined side by side must be equally wide."""
    widths = encoder_widths(spec, task)
    if combine != "concat" and len(set(widths)) > 1:
        raise InputError(
            f"combine = {combine!r}: needs embeddings of one width, but the encoders give "
            f"{', '.join(map(str, widths))}; set encoder, e.g. encoder = [64, 32]"
        )


def encoder_widths(spec: Any, task: Task) -> tuple[int, ...]:
    """The width of every client's embedding: known to all, so that the head can be built
    anywhere."""
    if isinstance(spec, Factory) and spec.widths is not None:
        return spec.widths
    if spec is None or isinstance(spec, list | tuple):  # as written; asked many times
        return tuple(encoder_layers(spec, width)[-1] for width in task.widths)
    return tuple(
        output_width(seeded(0, make_encoder, spec, width, shape), width)
        for width, shape in zip(task.widths, task.shapes, strict=True)
    )
