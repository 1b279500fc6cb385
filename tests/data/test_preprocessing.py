"""Raw columns become numbers: fitted on training rows, saved as JSON, applied the same later."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.data import DataSpec, load
from colonnade.data.preprocessing import Preprocessing, Remarks, check_treatment, load_preprocessing
from colonnade.data.preprocessing.fitted import AnyFitted, Drop
from colonnade.errors import InputError

CITIES = ["Rome", "Oslo", "Bonn", "Kyiv"]


def fit(values: object, declared: str | None = None, rows: int | None = None) -> AnyFitted:
    """The treatment of one column, fitted on its first rows."""
    count = len(values) if rows is None else rows  # pyright: ignore[reportArgumentType]
    keys = {"c": declared} if declared else {}
    other = np.arange(len(values)) % 7.0  # pyright: ignore[reportArgumentType]
    columns = {"c": values, "other": other}
    fitted = Preprocessing.fit(columns, np.arange(count), "t.csv", keys)  # pyright: ignore
    return fitted.columns[0]


def applied(fitted: AnyFitted, values: object, remarks: Remarks | None = None) -> np.ndarray:
    return fitted.apply(values, "t.csv", remarks or Remarks())  # pyright: ignore


cell = st.one_of(
    st.sampled_from(["", "NA", "12", "3.5", "-1e3", "yes", "no", "2024-02-29", "Rome", "Oslo"]),
    st.text(max_size=4),
)
columns_strategy = st.integers(8, 40).flatmap(
    lambda rows: st.lists(
        st.one_of(
            st.lists(cell, min_size=rows, max_size=rows),
            st.lists(st.floats(-1e6, 1e6).map(lambda x: f"{x:.3g}"), min_size=rows, max_size=rows),
            st.lists(st.sampled_from(["", *CITIES]), min_size=rows, max_size=rows),
            st.lists(st.dates().map(str), min_size=rows, max_size=rows),
        ),
        min_size=1,
        max_size=4,
    )
)


@settings(max_examples=60, deadline=None)
@given(columns_strategy, st.integers(0, 7))
def test_applying_the_saved_form_row_by_row_gives_the_bytes_of_training(
    lists: list[list[str]], row: int
) -> None:
    columns = {f"c{i}": values for i, values in enumerate(lists)}
    columns["number"] = [str(i % 5) for i in range(len(lists[0]))]
    rows = np.arange(len(lists[0]))
    fitted = Preprocessing.fit(columns, rows, "t.csv")
    whole = fitted.features(columns, "t.csv")
    assert whole.shape == (len(rows), fitted.width)
    assert np.isfinite(whole).all()
    again = json.loads(fitted.json())
    assert again["format"] == 1
    from_file = _reread(fitted)
    one = {name: [values[row]] for name, values in columns.items()}
    assert from_file.features(one, "t.csv").tobytes() == whole[row : row + 1].tobytes()
    assert from_file.features(columns, "t.csv").tobytes() == whole.tobytes()


def _reread(fitted: Preprocessing) -> Preprocessing:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "p.json"
        fitted.save(path)
        return load_preprocessing(path)


@pytest.mark.parametrize(
    ("values", "treatment", "width"),
    [
        (["1", "2.5", "-3", "4"], "standard", 1),
        (["1", "", "NA", "4"], "standard", 2),
        ([str(i) for i in range(99)] + ["1e9"], "quantile", 1),
        ([str(2.0**i) for i in range(1000)], "quantile", 1),
        (["yes", "no", "No", "YES"], "boolean", 1),
        (["true", "", "false", "true"], "boolean", 2),
        (CITIES * 3, "onehot", 4),
        ([*CITIES * 3, "Bari", "Pisa", ""], "onehot", 6),
        (["0", "1", "2", "3+"] * 5, "onehot", 4),
        ([f"{n},25" for n in range(30)], "standard", 1),
        ([f"1,{n:03}.5" for n in range(30)] + ["-"], "standard", 2),
        (["1.234.567,8", "1'000", "12 500,25", "0,5"], "standard", 1),
        (["01234", "00112", "10115"] * 4, "onehot", 3),
        ([f"town{i % 99}" for i in range(999)], "ordinal", 1),
        (["2024-01-31", "2023-05-01", "2024-02-29"], "date", 5),
        (["2024-01-31 10:00", "2023-05-01 23:15", ""], "date", 8),
        (["31.01.2024", "01.05.2023"] * 3, "date", 5),
        (["2024/01/31", "2023/05/01"] * 3, "date", 5),
        (["2024-01-31", "01.05.2023", "NA"] * 9, "date", 6),
        (["31.01.2024 10:00", "01.05.2023 08:30:10"] * 3, "date", 7),
        ([f"{1 + n % 12:02}/{1 + n % 28:02}/2024" for n in range(60)], "date", 5),
        ([f"1.{n}.{n % 7}" for n in range(60)] * 3, "onehot", 60),
        ([""] * 5, "drop", 0),
        (["same"] * 5, "drop", 0),
        ([f"a long remark, number {i}" for i in range(50)], "drop", 0),
        (["7"] * 5, "standard", 1),
    ],
)
def test_a_column_is_treated_by_what_its_cells_are(
    values: list[str], treatment: str, width: int
) -> None:
    fitted = fit(values)
    assert (fitted.treatment, fitted.width) == (treatment, width)
    assert applied(fitted, values).shape == (len(values), width)


def test_numbers_that_name_rows_are_left_out_and_said() -> None:
    columns = {"patient_id": np.arange(100.0), "paid": np.arange(100.0)}
    fitted = Preprocessing.fit(columns, np.arange(100), "t.csv")
    assert [column.treatment for column in fitted.columns] == ["drop", "standard"]
    [note] = fitted.notes()
    assert "patient_id (ids: a different number in each row)" in note


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "__index_level_0__"])
def test_the_row_numbers_that_pandas_writes_are_left_out_and_said(name: str) -> None:
    columns = {name: [str(i) for i in range(100)], "paid": np.arange(100.0)}
    fitted = Preprocessing.fit(columns, np.arange(0, 100, 2), "t.csv")
    assert [column.treatment for column in fitted.columns] == ["drop", "standard"]
    assert "no name, and a different number in each row" in fitted.notes()[0]
    kept = Preprocessing.fit(columns, np.arange(100), "t.csv", {name: "standard"})
    assert kept.width == 2
    repeated = {name: [str(i % 9) for i in range(100)]}
    assert Preprocessing.fit(repeated, np.arange(100), "t.csv").width == 1


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([f"{i % 24}:{i:02}" for i in range(60)], "times such as '0:00', .*\"date:%H:%M\""),
        ([f"€ {i}.30" for i in range(60)], "numbers with a unit such as '€ 0.30', .*the unit off"),
        ([f"-{i},50 €" for i in range(1, 61)], "numbers with a unit such as '-1,50 €'"),
        ([f"{i / 7:.1f}%" for i in range(60)], "numbers with a unit such as '0.0%'"),
        ([f"$1,{i:03}" for i in range(60)], r"numbers with a unit such as '\$1,000'"),
        ([f"call at {i}" for i in range(60)], "ids or free text: 60 values in 60 rows"),
    ],
)
def test_what_a_column_that_is_left_out_looks_like_is_said(values: list[str], why: str) -> None:
    assert re.match(why, fit(values).why)  # pyright: ignore[reportAttributeAccessIssue]


def test_times_become_points_on_a_circle_as_the_advice_says() -> None:
    times = [f"{i % 24:02}:{i:02}" for i in range(60)]
    fitted = Preprocessing.fit({"at": times}, np.arange(60), "t.csv", {"at": "date:%H:%M"})
    x = fitted.features({"at": ["00:00", "06:00", "12:00"]}, "t.csv")
    assert np.isfinite(x).all()
    assert np.allclose(x[:, -2:], [[0, 1], [1, 0], [0, -1]], atol=1e-6)


def test_only_training_rows_are_looked_at() -> None:
    values = ["1", "3", "1000", "Oslo"]
    fitted = fit(values[:3], rows=2)
    assert fitted.centre == 2.0  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(InputError, match=r"column 'c', data row 4 is 'Oslo'.*expected a number"):
        applied(fitted, values)


def test_a_gap_takes_the_median_and_a_number_more_says_where() -> None:
    fitted = fit(["1", "2", "9", "", "2"])
    found = applied(fitted, ["", "2"])
    assert found[0, 0] == found[1, 0]
    assert found[:, 1].tolist() == [1.0, 0.0]


def test_a_new_category_is_other_or_zeros_and_is_counted() -> None:
    plain, remarks = fit(CITIES * 3), Remarks()
    assert applied(plain, ["Rome", "Lima", "Lima"], remarks).sum(1).tolist() == [1.0, 0.0, 0.0]
    assert remarks.notes() == ("column 'c': 2 cells hold values that no training row has",)
    rare, remarks = fit([*CITIES * 3, "Bari"]), Remarks()
    found = applied(rare, ["Bari", "Lima"], remarks)
    assert found[0].tolist() == found[1].tolist() == [0.0, 0.0, 0.0, 0.0, 1.0]
    assert remarks.new["c"] == 1, "Bari was rare, Lima is new"


def test_categories_that_are_numbers_are_the_same_in_every_kind_of_file() -> None:
    fitted = fit(np.array([1.0, 2.0, 3.0] * 4), "onehot")
    assert np.array_equal(
        applied(fitted, ["1", "2.0", "3"]), applied(fitted, np.array([1.0, 2.0, 3.0]))
    )


def test_quantiles_are_those_of_scikit_learn() -> None:
    from sklearn.preprocessing import QuantileTransformer

    values = np.random.default_rng(0).lognormal(3, 2, 500)
    fitted = fit(values, "quantile")
    theirs = QuantileTransformer(n_quantiles=101, output_distribution="normal")
    expected = theirs.fit_transform(values[:, None])[:, 0]
    inside = np.abs(expected) < 3
    assert np.allclose(applied(fitted, values)[inside, 0], expected[inside], atol=1e-5)


@pytest.mark.parametrize(
    ("values", "declared", "words"),
    [
        (["1", "x", "2"], "standard", "holds 'x', which is no number"),
        (["", "", ""], "onehot", "is empty in all training rows"),
        (["03/04/2025", "12/05/2025"], "date", "say how they are written"),
        (["1", "0", "maybe"], "boolean", "holds 'maybe'; expected true or false"),
        (["1", "2", "inf"], "standard", "data row 3 is infinite"),
        ([*map(str, range(100)), "broken"], None, "mixes numbers and words.*not 'broken'"),
        ([f"{i},250" for i in range(1, 30)], None, "'1,250', which may be thousands or have"),
        ([f"01/{m:02}/{y}" for m in range(1, 13) for y in (2001, 2002)], None, "'01/01/2001' mean"),
        ([f"2024-01-{1 + n % 28:02}" for n in range(30)] + ["soon"], None, "what 'soon' means"),
    ],
)
def test_a_column_that_cannot_be_used_is_named(
    values: list[str], declared: str | None, words: str
) -> None:
    with pytest.raises(InputError, match=rf"t\.csv: column 'c'.*{words}"):
        fit(values, declared)


def test_dates_in_another_order_are_read_as_declared() -> None:
    fitted = fit(["03/04/2025", "12/05/2025"], "date:%d/%m/%Y")
    same = fit(["2025-04-03", "2025-05-12"])
    first, second = applied(fitted, ["03/04/2025"]), applied(same, ["2025-04-03"])
    assert first.tobytes() == second.tobytes()


def test_dates_that_are_written_in_several_ways_are_the_same_dates() -> None:
    """Of 03/04/2025 other cells of the training rows tell that the day comes first."""
    iso = fit([f"2025-04-{n:02}" for n in range(1, 29)])
    mixed = fit([f"2025-04-{n:02}" if n % 2 else f"{n:02}/04/2025" for n in range(1, 29)])
    days = np.array([applied(iso, ["2025-04-03"]), applied(mixed, ["03/04/2025"])])
    assert days[0].tobytes() == days[1].tobytes()
    with pytest.raises(InputError, match="expected a date such as 2025-01-31 or 31/01/2025, as"):
        applied(mixed, ["04/31/2025"])


def test_numbers_that_people_write_are_the_numbers_that_programs_write() -> None:
    plain = fit(["1234.5", "0.5", "99"])
    for written, declared in (
        (["1.234,5", "0,5", "99"], None),
        (["1,234.5", "0.5", "99"], None),
        (["1 234,5", "0,5", "99"], "standard:comma"),
    ):
        fitted = fit(written, declared)
        assert (
            applied(fitted, written).tobytes() == applied(plain, ["1234.5", "0.5", "99"]).tobytes()
        )
    with pytest.raises(InputError, match="expected a number with a decimal comma, as in"):
        applied(fitted, ["1.5"])
    thousands = [f"{n},250" for n in range(1, 30)]
    assert fit(thousands, "standard:point").centre == 15_250  # pyright: ignore
    assert fit(thousands, "standard:comma").centre == 15.25  # pyright: ignore


def test_a_column_that_is_missing_at_prediction_is_named() -> None:
    columns = {"age": ["1", "2"], "note": ["", ""]}
    fitted = Preprocessing.fit(columns, np.arange(2), "t.csv")
    assert isinstance(fitted.columns[1], Drop)
    assert fitted.features({"age": ["3"]}, "new.csv").shape == (1, 1)
    with pytest.raises(InputError, match=r"new\.csv: column 'age' is missing.*nearest is 'aged'"):
        fitted.features({"aged": ["3"]}, "new.csv")


def test_a_table_of_which_nothing_is_left_is_refused() -> None:
    with pytest.raises(InputError, match=r"no column is left.*a: empty; b: one value only"):
        Preprocessing.fit({"a": ["", ""], "b": ["x", "x"]}, np.arange(2), "t.csv")


def test_a_damaged_file_of_a_preprocessing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "clinic.preprocessing.json"
    path.write_text('{"columns": [{"treatment": "magic"}]}')
    with pytest.raises(InputError, match=r"clinic\.preprocessing\.json: is no saved"):
        load_preprocessing(path)


MESSY = "age,city,when,smoker,note,ill\n" + "".join(
    f"{'' if n % 9 == 0 else 20 + n},{CITIES[n % 4]},2024-01-{1 + n % 28:02},"
    f"{'yes' if n % 3 else 'no'},remark {n},{'yes' if n % 2 else 'no'}\n"
    for n in range(80)
)


def test_a_raw_csv_is_loaded_with_no_more_keys_and_says_what_it_left_out(csv) -> None:
    data = load(DataSpec(path=csv(MESSY), label="ill", parties=2), 0)
    assert data.widths == (2 + 4 + 5, 1)
    assert data.shapes == ((11,), (1,))
    assert any("columns left out: note (ids or free text" in note for note in data.notes)


def test_treatments_are_declared_by_column(csv) -> None:
    path = csv(MESSY)
    keys = {"city": "ordinal", "when": "drop", "age": "quantile"}
    data = load(DataSpec(path=path, label="ill", parties=1, prepare=keys), 0)
    assert data.widths == (2 + 1 + 1,)
    with pytest.raises(InputError, match=r"data\.prepare names 'town'.*nearest is"):
        load(DataSpec(path=path, label="ill", prepare={"town": "drop"}), 0)
    with pytest.raises(InputError, match=r'data\.prepare\.city = "hot": .*nearest is \'onehot\''):
        DataSpec(path=path, label="ill", prepare={"city": "hot"})


def test_levels_rank_in_the_order_that_is_declared() -> None:
    """By frequency, mid would come first. A level that is not declared takes the median."""
    values = ["mid"] * 6 + ["low"] * 3 + ["high"] * 2 + ["", "huge"]
    declared = {"pain": "ordinal: low | mid|high"}
    fitted = Preprocessing.fit({"pain": values}, np.arange(len(values)), "t.csv", declared)
    fitted = msgspec.json.decode(fitted.json(), type=Preprocessing)
    assert fitted.names == ("pain", "pain is empty")
    remarks = Remarks()
    cells = {"pain": ["low", "mid", "high", "", "huge"]}
    x = fitted.features(cells, "t.csv", remarks)
    low, mid, high, gap, huge = x[:, 0].tolist()
    assert high - mid == pytest.approx(mid - low)
    assert low < mid < high
    assert gap == huge == mid
    assert x[:, 1].tolist() == [0, 0, 0, 1, 0]
    assert remarks.new["pain"] == 1


def test_a_declared_order_of_numbers_counts_10_after_2() -> None:
    values = ["10", "2", "1", "2.0"]
    fitted = Preprocessing.fit({"x": values}, np.arange(4), "t.csv", {"x": "ordinal:1|2|10"})
    ten, two, one, again = fitted.features({"x": values}, "t.csv")[:, 0].tolist()
    assert one < two < ten
    assert two == again


def test_a_declared_order_that_cannot_be_is_refused() -> None:
    for wrong in ("ordinal:low", "ordinal:low|low", "ordinal:low||high"):
        with pytest.raises(InputError, match=r"data\.prepare\.x = .*two levels or more"):
            check_treatment(wrong, "data.prepare.x")
    with pytest.raises(InputError, match=r"none of the levels .*\(a, b\); it holds high, low"):
        Preprocessing.fit({"x": ["low", "high"]}, np.arange(2), "t.csv", {"x": "ordinal:a|b"})
