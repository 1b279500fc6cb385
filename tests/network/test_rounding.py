"""Messages that are rounded where they leave."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from colonnade.algorithms import registry
from colonnade.algorithms.method_table import parse_method
from colonnade.data import DataSpec, load
from colonnade.errors import InputError
from colonnade.learning.settings import Settings
from colonnade.learning.task import Task
from colonnade.network.rounding import BLOCK, Residuals, Rounding
from colonnade.network.spec import Wire
from colonnade.network.wire import Header, decode, encode
from colonnade.testing import live, projected, stacked
from colonnade.testing.engines import difference

WIRES: tuple[Wire, ...] = get_args(Wire)
DIGITS = load(DataSpec(dataset="digits", rows=300, parties=3), 0)  # of unequal widths
BYTES = {"float16": 2, "bfloat16": 2, "int8": 1}
# The largest error, as a share of the largest number of its row.
ERROR = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "int8": 0.5 / 127 * (1 + 2**-6)}
rows = arrays.arrays(
    np.float32,
    st.tuples(st.integers(1, 3), st.integers(1, 2 * BLOCK + 3)),
    elements=st.floats(-(2.0**14), 2.0**14, width=32, allow_subnormal=False),
)


def splitnn(**more: Any) -> Settings:
    table = {"algorithm": "splitnn", "epochs": 2, "encoder": [0.5], "lr": 5e-3}
    return parse_method({**table, **more}, "method")


@given(rows, st.sampled_from(WIRES))
def test_a_rounded_number_is_near_and_takes_the_bytes_it_should(row: Any, wire: Wire) -> None:
    value, rounding = torch.from_numpy(row), Rounding(wire)
    packed = rounding.pack(value)
    width = value.shape[1]
    scales = 2 * -(-width // BLOCK) if wire == "int8" else 0
    assert packed.element_size() * packed.shape[1] == BYTES[wire] * width + scales
    found = rounding.unpack(packed, width, torch.float32)
    limit = ERROR[wire] * value.abs().amax(1, keepdim=True) + 1e-7
    assert ((found - value).abs() <= limit).all()


@given(rows)
def test_wide_rows_have_a_scale_for_each_block(row: Any) -> None:
    """So that one large number does not cost the others their precision."""
    value = torch.from_numpy(row)
    found = Rounding("int8").rounded(value)
    for block in range(0, value.shape[1], BLOCK):
        part = slice(block, block + BLOCK)
        assert torch.equal(Rounding("int8").rounded(value[:, part].contiguous()), found[:, part])


@pytest.mark.parametrize("wire", WIRES)
def test_what_is_not_finite_arrives_as_what_it_is(wire: Wire) -> None:
    value = torch.tensor([[1.0, float("nan")], [float("nan"), 2.0], [0.0, 0.0], [1.0, 2.0]])
    finite = Rounding(wire).rounded(value).isfinite().all(1)
    assert finite.tolist() == [False, False, True, True]


@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16, torch.float16])
def test_the_wire_carries_the_number_types(dtype: torch.dtype) -> None:
    value = torch.arange(-6, 6).reshape(3, 4).to(dtype)
    _, found = decode(encode(Header((0, 1), "a", 0, "b", 0, "x"), value))
    assert found is not None
    assert found.dtype == dtype
    assert torch.equal(found, value)


@pytest.fixture
def _double_precision() -> Iterator[None]:
    """The engines add up in different orders, and the last bit decides which way half a step is
    rounded: so with as few such cases as can be."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("_double_precision")
@pytest.mark.parametrize("wire", WIRES)
def test_all_engines_train_the_same_model_and_count_the_same_bytes(wire: Wire) -> None:
    one = stacked(splitnn(wire=wire), DIGITS)
    plain = stacked(splitnn(), DIGITS)
    assert any(
        not torch.equal(value, plain.weights[party][key])
        for party, tensors in one.weights.items()
        for key, value in tensors.items()
    )
    for each in (projected(splitnn(wire=wire), DIGITS), live(splitnn(wire=wire), DIGITS)):
        assert difference(one, each) < 1e-9
        rows = sorted(row for t in each.values() for row in t.net.ledger.rows())
        assert rows == sorted(one.net.ledger.rows())


@pytest.mark.parametrize("wire", WIRES)
def test_the_ledger_counts_scales_as_well(wire: Wire) -> None:
    ledger = stacked(splitnn(wire=wire), DIGITS).net.ledger.rows()
    plain = {row[:4]: row[4:] for row in stacked(splitnn(), DIGITS).net.ledger.rows()}
    widths = dict(zip(DIGITS.clients, (w // 2 for w in DIGITS.widths), strict=True))
    for row in ledger:
        key, (messages, size) = row[:4], row[4:]
        assert messages == plain[key][0]
        whole = plain[key][1]
        if key[3] == "decision":
            assert size == whole
            continue
        width = widths[key[1] if key[3] == "embedding" else key[2]]
        numbers = whole // 4
        assert size == BYTES[wire] * numbers + (2 * numbers // width if wire == "int8" else 0)


def test_what_rounding_takes_from_one_message_is_added_to_the_next() -> None:
    rounding = Rounding("int8")
    residuals, stream = Residuals(rounding, (0, 1)), torch.Generator().manual_seed(0)
    told, plain, true = torch.zeros(2, 1, 40), torch.zeros(2, 1, 40), torch.zeros(2, 1, 40)
    sent = torch.tensor([True, False])
    for _ in range(200):
        value = torch.randn(2, 1, 40, generator=stream) * 0.01
        value[:, :, 0] = 1.0  # makes the steps coarse
        told += rounding.rounded(residuals.corrected(value, 0, sent))
        plain += rounding.rounded(value)
        true += value
    step = 1.05 / 127
    assert (told - true)[0].abs().max() < step
    assert (plain - true)[0].abs().max() > 2 * step
    assert torch.equal(told[1], plain[1])  # what was not sent leaves nothing behind


def test_field_elements_are_never_rounded() -> None:
    settings = parse_method({"algorithm": "fedvs", "wire": "int8"}, "method")
    with pytest.raises(InputError, match='wire = "int8": fedvs sends field elements'):
        settings.check(Task.of(DIGITS, 0))


def test_predictions_and_control_are_exact_whatever_the_wire_is() -> None:
    for name, kind in registry().items():
        for exchange in kind.exchanges:
            if exchange.kind in ("log-probability", "answer", "validation", "pace", "regulariser"):
                assert exchange.exact, (name, exchange.kind)
