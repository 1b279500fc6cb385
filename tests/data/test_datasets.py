"""Data sets by name: present, missing, fetched."""

from __future__ import annotations

import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from urllib.error import URLError

import numpy as np
import pytest
import sklearn.datasets
import torch

from colonnade.data import CATALOGUE, DataSpec, data_folder, listing, load, present
from colonnade.data.catalogue import OpenML
from colonnade.errors import InputError


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not present(name), reason=f"{name} is not in the data folder")


def test_the_data_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLONNADE_DATA", "/somewhere")
    assert data_folder() == Path("/somewhere")
    monkeypatch.delenv("COLONNADE_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert data_folder() == Path("/cache/colonnade")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_folder() == Path.home() / ".cache" / "colonnade"


def test_the_listing_says_for_every_set_how_to_come_by_it(empty_folder: Path) -> None:
    (empty_folder / "handwritten_mfeat.npz").touch()
    (empty_folder / "cifar10_20k.npz").touch()
    lines = {line.name: line for line in listing()}
    assert list(lines) == list(CATALOGUE)
    assert lines["digits"].source == "embedded"
    assert lines["handwritten"].source == "in data folder"
    assert lines["cifar10"].path.endswith("cifar10_20k.npz")
    assert "20,000 of 50,000 training rows" in lines["cifar10"].note
    assert lines["mnist"].source == "can be downloaded"
    assert lines["caltech7"].source == "to be obtained by hand"
    for line in lines.values():
        assert line.title
        assert line.licence
        assert line.where or line.source == "embedded"
    assert present("digits")
    assert not present("mnist")


def test_a_subset_that_stands_in_says_so_in_the_notes(empty_folder: Path) -> None:
    images = np.zeros((20, 4, 4, 3), dtype=np.uint8)
    y = np.arange(20) % 10
    np.savez(empty_folder / "cifar10_20k.npz", x_train=images, y_train=y, x_test=images, y_test=y)
    assert "20,000 of 50,000 training rows" in load(DataSpec(dataset="cifar10"), 0).notes[0]
    np.savez(empty_folder / "cifar10.npz", x_train=images, y_train=y, x_test=images, y_test=y)
    assert load(DataSpec(dataset="cifar10"), 0).notes == ()


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"no data set 'fashion-mnist'.*'fashion_mnist'"):
        load(DataSpec(dataset="fashion-mnist"), 0)


def test_a_set_to_be_obtained_by_hand_says_where_from_and_where_to(empty_folder: Path) -> None:
    with pytest.raises(InputError) as error:
        load(DataSpec(dataset="parkinsons"), 0)
    for word in ["parkinsons.npz", str(empty_folder), "COLONNADE_DATA", "UCI 470"]:
        assert word in str(error.value)


def test_without_a_network_the_error_says_where_to_get_the_set(
    empty_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def offline(**keys: object) -> None:
        assert socket.getdefaulttimeout() is not None  # a bounded wait
        assert keys["n_retries"] == 1
        raise URLError("no route")

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", offline)
    with pytest.raises(InputError) as error:
        load(DataSpec(dataset="mnist"), 0)
    for word in ["mnist.npz", str(empty_folder), "OpenML 554", "no route"]:
        assert word in str(error.value)
    assert socket.getdefaulttimeout() is None
    assert list(empty_folder.iterdir()) == []


def test_a_fetched_set_is_kept_in_the_data_folder(
    empty_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def online(*, data_id: int, **_: object) -> SimpleNamespace:
        asked.append(data_id)
        x = np.random.default_rng(0).normal(size=(50, 4))
        x[:, 0] = np.arange(50)
        return SimpleNamespace(
            data=x,
            target=np.array([str(n % 2) for n in range(50)], dtype=object),
            feature_names=["ID", "x1", "x2", "x3"],
        )

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", online)
    first = load(DataSpec(dataset="credit_default", parties=3), 0)
    again = load(DataSpec(dataset="credit_default", parties=3), 0)
    assert asked == [42477]
    assert [path.name for path in empty_folder.iterdir()] == ["credit_default.npz"]
    assert first.widths == (1, 1, 1)  # the running number is no feature
    assert torch.equal(first.train.x[0], again.train.x[0])


@pytest.mark.usefixtures("empty_folder")
def test_fetched_pictures_are_laid_out_like_our_own_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = np.random.default_rng(0).integers(0, 256, (60, 3 * 32 * 32)).astype(float)
    target = (np.arange(60) % 10).astype(str).astype(object)
    short = replace(CATALOGUE["cifar10"], openml=OpenML(40927, (3, 32, 32), train=50))
    monkeypatch.setitem(CATALOGUE, "cifar10", short)
    bunch = SimpleNamespace(data=rows, target=target, feature_names=["a"])
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", lambda **_: bunch)
    data = load(DataSpec(dataset="cifar10", parties=1, validation=0.0), 0)
    assert (len(data.train), len(data.test), data.shapes) == (50, 10, ((3, 32, 32),))
    assert np.allclose(data.test.x[0].numpy(), rows[50:] / 255)
    assert present("cifar10")


def test_importing_the_package_does_not_import_the_slow_libraries() -> None:
    code = "import sys, colonnade.data; print({'sklearn', 'polars'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "set()"


@needs("mnist")
def test_mnist_keeps_its_official_test_rows_and_its_known_mean() -> None:
    data = load(DataSpec(dataset="mnist"), 0)
    assert (len(data.train), len(data.validation), len(data.test)) == (54_000, 6_000, 10_000)
    counts = torch.bincount(data.test.y).tolist()
    assert counts == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    pixels = sum(
        float(rows.x[n].double().sum()) for rows in (data.train, data.validation) for n in range(4)
    )
    assert pixels / (60_000 * 784) == pytest.approx(0.1307, abs=5e-5)


@needs("credit_default")
def test_credit_default_goes_to_eleven_parties_with_its_shares_of_defaults() -> None:
    data = load(DataSpec(dataset="credit_default"), 0)
    assert sorted(data.widths) == [2] * 10 + [3]
    for rows in (data.train, data.validation, data.test):
        assert rows.y.double().mean() == pytest.approx(6636 / 30_000, abs=1e-3)


@needs("handwritten")
def test_logistic_regression_on_handwritten_reaches_the_reference_accuracy() -> None:
    from sklearn.linear_model import LogisticRegression

    data = load(DataSpec(dataset="handwritten", test=0.4, validation=0.0), 0)
    assert data.clients == ("fou", "fac", "kar", "pix", "zer", "mor")
    model = LogisticRegression(C=0.1, max_iter=200)
    model.fit(torch.cat(data.train.x, 1).numpy(), data.train.y.numpy())
    accuracy = model.score(torch.cat(data.test.x, 1).numpy(), data.test.y.numpy())
    assert accuracy == pytest.approx(0.988, abs=0.02)
