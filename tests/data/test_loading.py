"""From a `[data]` table to data ready to train on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from colonnade.data import DataSpec, VerticalData, from_arrays, load
from colonnade.data.scaling import Scaler
from colonnade.data.spec import PixelScale
from colonnade.errors import InputError

Writer = Callable[..., str]


def table(rows: int = 100, width: int = 5) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {"x": random.normal(3, 7, (rows, width)), "y": np.arange(rows) % 2}


def digit_images() -> np.ndarray:
    bunch: Any = load_digits()
    return bunch.images


def same(one: VerticalData, other: VerticalData) -> bool:
    return all(
        torch.equal(a, b) for a, b in zip(one.train.x, other.train.x, strict=True)
    ) and torch.equal(one.train.y, other.train.y)


@pytest.mark.usefixtures("empty_folder")
@pytest.mark.parametrize(
    ("name", "shapes", "classes", "rows"),
    [
        ("digits", ((1, 2, 8),) * 4, 10, 1797),
        ("breast_cancer", ((10,),) * 3, 2, 569),
        ("wine", ((5,), (4,), (4,)), 3, 178),
    ],
)
def test_embedded_sets_need_no_data_folder(name, shapes, classes, rows) -> None:
    data = load(DataSpec(dataset=name), seed=0)
    assert (data.shapes, data.classes) == (shapes, classes)
    assert len(data.train) + len(data.validation) + len(data.test) == rows
    assert abs(len(data.test) - 0.2 * rows) < 1
    for x in (*data.train.x, *data.test.x):
        assert x.dtype == torch.float32
        assert x.is_contiguous()
    assert data.train.y.dtype == torch.int64


def test_digits_are_scaled_to_the_unit_interval_and_bands_are_real_pixels() -> None:
    data = load(DataSpec(dataset="digits"), seed=0)
    everything = torch.cat([data.train.x[0], data.validation.x[0], data.test.x[0]])
    top = digit_images()[:, :2].reshape(-1, 16) / 16
    assert sorted(map(tuple, everything.tolist())) == sorted(map(tuple, top.tolist()))


def test_pixels_may_be_centred_and_spread_like_published_ones() -> None:
    plain = load(DataSpec(dataset="digits"), seed=0)
    scaled = load(DataSpec(dataset="digits", scale=PixelScale(mean=0.1, spread=0.5)), seed=0)
    for one, other in zip(plain.test.x, scaled.test.x, strict=True):
        assert torch.allclose((one - 0.1) / 0.5, other, atol=1e-6)
    with pytest.raises(InputError, match=r"data\.scale: is for pixels"):
        load(DataSpec(dataset="wine", scale=PixelScale(mean=0.1, spread=0.5)), seed=0)


def test_a_noisy_party_is_noisy_in_all_rows_and_nobody_else_is() -> None:
    plain = load(DataSpec(dataset="digits"), seed=3)
    noisy = load(DataSpec(dataset="digits", noisy={"client1": 0.5}), seed=3)
    for part in ("train", "validation", "test"):
        for k, (one, other) in enumerate(
            zip(getattr(plain, part).x, getattr(noisy, part).x, strict=True)
        ):
            assert torch.equal(one, other) == (k != 1)
    noise = noisy.train.x[1] - plain.train.x[1]
    assert abs(float(noise.std()) - 0.5) < 0.02
    assert any("client1 (standard deviation 0.5)" in note for note in noisy.notes)
    with pytest.raises(InputError, match=r"data\.noisy\.client7: is none of the parties .*client"):
        load(DataSpec(dataset="digits", noisy={"client7": 0.5}), seed=0)


def test_the_same_seed_gives_the_same_rows_and_another_seed_other_rows() -> None:
    spec = DataSpec(dataset="wine")
    assert same(load(spec, 1), load(spec, 1))
    assert not same(load(spec, 1), load(spec, 2))


def test_the_rows_do_not_depend_on_how_the_columns_are_split() -> None:
    two, four = (load(DataSpec(dataset="wine", parties=parties), 5) for parties in (2, 4))
    assert torch.equal(two.train.y, four.train.y)
    assert torch.equal(torch.cat(two.train.x, 1), torch.cat(four.train.x, 1))


def test_standardisation_is_fitted_on_training_rows_only(npz: Writer) -> None:
    arrays = table()
    spec = DataSpec(path=npz(**arrays))
    data = load(spec, 0)
    seen = torch.cat(data.train.x, 1).double()
    assert torch.allclose(seen.mean(0), torch.zeros(5, dtype=torch.float64), atol=1e-6)
    assert torch.allclose(seen.std(0, correction=0), torch.ones(5, dtype=torch.float64), atol=1e-6)
    official = {
        "x_train": arrays["x"], "y_train": arrays["y"], "y_test": arrays["y"],
        "x_test": arrays["x"] * 1e6,
    }  # fmt: skip
    wild = load(DataSpec(path=npz(**official), validation=0.0), 0)
    official["x_test"] = arrays["x"]
    tame = load(DataSpec(path=npz(**official), validation=0.0), 0)
    assert same(wild, tame)
    assert wild.test.x[0].abs().max() > 1e5


def test_a_constant_column_becomes_zero_and_not_noise(npz: Writer) -> None:
    arrays = table()
    arrays["x"][:, 2] = 0.1
    data = load(DataSpec(path=npz(**arrays), parties=5), 0)
    assert data.train.x[2].abs().max() < 1e-6


def test_huge_values_are_scaled_like_others() -> None:
    x = np.random.default_rng(0).normal(size=(50, 2))
    usual = Scaler.standardising(x).apply(x)
    assert torch.allclose(Scaler.standardising(x * 1e300).apply(x * 1e300), usual, atol=1e-6)


def test_byte_images_are_divided_by_255_and_laid_out_channel_first(npz: Writer) -> None:
    images = np.random.default_rng(0).integers(0, 256, (10, 4, 3, 3), dtype=np.uint8)
    path = npz(x=images, y=np.arange(10) % 2)
    data = load(DataSpec(path=path, test=0.0, validation=0.0), 0)
    assert data.shapes == ((3, 2, 3),) * 2
    expected = {tuple((np.moveaxis(i[:2], 2, 0).ravel() / 255).round(5)) for i in images}
    found = {tuple(row) for row in data.train.x[0].numpy().astype(float).round(5)}
    assert found == expected


def test_labelled_rows_stay_aligned_and_the_rest_is_dealt_to_single_clients(npz: Writer) -> None:
    numbers = np.arange(100.0)
    path = npz(x=np.stack([numbers, numbers], 1), y=np.arange(100) % 2)
    data = load(DataSpec(path=path, labelled=10), 0)
    assert len(data.train) == 10
    assert [len(extra) for extra in data.extra] == [31, 31]  # 100 - 20 test - 8 validation - 10
    entities = [
        scaler.spread * extra.numpy()[:, 0] + scaler.centre
        for scaler, extra in zip(data.scalers, data.extra, strict=True)
        if isinstance(scaler, Scaler)
    ]
    assert len(set(np.concatenate(entities).round().tolist())) == 62
    for x, extra in zip(data.train.x, data.extra, strict=True):
        assert torch.cat([x, extra]).mean().abs() < 1e-6  # scaled by all rows the client holds


def test_labelled_rows_beyond_the_training_rows_are_refused(npz: Writer) -> None:
    with pytest.raises(InputError, match=r"data.labelled = 73: only 72 training rows"):
        load(DataSpec(path=npz(**table()), labelled=73), 0)
    whole = load(DataSpec(path=npz(**table()), labelled=72), 0)
    assert [tuple(extra.shape) for extra in whole.extra] == [(0, 3), (0, 2)]


def test_columns_by_name_work_on_a_named_set_and_say_what_nobody_holds() -> None:
    holders = {"lab": ["alcohol", "ash"], "taster": ["hue"]}
    data = load(DataSpec(dataset="wine", columns=holders), 0)
    assert (data.clients, data.widths) == (("lab", "taster"), (2, 1))
    assert "held by no party" in data.notes[0]
    assert "magnesium" in data.notes[0]
    with pytest.raises(InputError, match=r"no column 'alcohl'.*'lab'.*nearest is 'alcohol'"):
        load(DataSpec(dataset="wine", columns={"lab": ["alcohl"]}), 0)
    with pytest.raises(InputError, match="columns of digits have no names"):
        load(DataSpec(dataset="digits", columns={"lab": ["p"]}), 0)


def test_views_of_own_files_go_to_one_party_each(npz: Writer) -> None:
    random, y = np.random.default_rng(0), np.arange(30) % 3
    path = npz(view0=random.normal(size=(30, 4)), view1=random.normal(size=(30, 2)), y=y)
    data = load(DataSpec(path=path), 0)
    assert data.shapes == ((4,), (2,))
    assert load(DataSpec(path=path, split="columns", parties=3), 0).widths == (2, 2, 2)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({}, "exactly one of dataset"),
        ({"dataset": "wine", "path": "x.csv"}, "exactly one of dataset"),
        ({"dataset": "wine", "parties": 0}, "data.parties = 0"),
        ({"dataset": "wine", "rows": 0}, "data.rows = 0"),
        ({"dataset": "wine", "labelled": -1}, "data.labelled = -1"),
        ({"dataset": "wine", "test": 1.0}, "data.test = 1.0"),
        ({"dataset": "wine", "validation": -0.1}, "data.validation = -0.1"),
        ({"dataset": "wine", "label": "hue"}, "data.label"),
        ({"dataset": "wine", "columns": {}}, "data.columns"),
        ({"dataset": "wine", "columns": {"a": ["hue"]}, "parties": 2}, "data.parties = 2"),
        ({"dataset": "wine", "columns": {"a": ["hue"]}, "split": "bands"}, 'data.split = "bands"'),
    ],
)
def test_a_contradictory_data_table_is_refused_before_anything_is_read(keys, words) -> None:
    with pytest.raises(InputError) as error:
        DataSpec(**keys)
    assert words in str(error.value)


def test_too_few_rows_for_the_shares_are_refused(npz: Writer) -> None:
    with pytest.raises(InputError, match="no training rows"):
        load(DataSpec(path=npz(**table(rows=4)), validation=0.9), 0)


def test_new_rows_are_split_and_scaled_like_the_training_rows() -> None:
    arrays = table()
    data = from_arrays(arrays["x"], arrays["y"], columns=[[4, 0], [1, 2, 3]], validation=0.0)
    assert (data.widths, len(data.test), data.shapes) == ((2, 3), 0, ((2,), (3,)))
    again = data.apply_split(arrays["x"])
    for new, known in zip(again, data.train.x, strict=True):
        assert sorted(new.tolist()) == sorted(known.tolist())
    scaled = (arrays["x"] - arrays["x"].mean(0)) / arrays["x"].std(0)
    assert np.allclose(again[0].numpy(), scaled[:, [4, 0]], atol=1e-5)
    with pytest.raises(InputError, match="new rows have 4 columns, the training rows had 5"):
        data.apply_split(arrays["x"][:, :4])


def test_new_pictures_are_split_like_the_training_pictures() -> None:
    images = digit_images()
    data = load(DataSpec(dataset="digits", split="patches"), 0)
    corner = data.apply_split(images)[0]
    assert np.array_equal(corner.numpy(), (images[:, :4, :4] / 16).reshape(-1, 16))


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({}, "exactly one of parties and columns"),
        ({"parties": 6}, "5 columns"),
        ({"columns": [[0], [0]]}, "twice"),
        ({"columns": [[0], [5]]}, "0 to 4"),
        ({"columns": [[0], []]}, "at least one column"),
        ({"parties": 2, "validation": 1.5}, "data.validation"),
    ],
)
def test_impossible_column_groups_are_refused(keys, words) -> None:
    with pytest.raises(InputError, match=words):
        from_arrays(table()["x"], table()["y"], **keys)


def test_classes_that_only_test_rows_have_get_a_note(npz: Writer) -> None:
    x, y = np.arange(80.0).reshape(40, 2), np.arange(30) % 2
    late = np.array([0, 1, 2, 2, 3] * 2)
    path = npz(x_train=x[:30], y_train=y, x_test=x[30:], y_test=late)
    *_, note = load(DataSpec(path=path, parties=2), seed=0).notes
    assert note.startswith("6 of 10 test rows are of classes that no training row has (2, 3)")
    path = npz(x_train=x[:30], y_train=y, x_test=x[30:], y_test=late % 2)
    assert not load(DataSpec(path=path, parties=2), seed=0).notes
