"""The data sets known by name: what they are, where they come from, how they are usually split.

Licences and catalogue numbers are quoted from the catalogues; check them before you redistribute.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from colonnade.common.metric_names import GoalName
from colonnade.common.text import nearest
from colonnade.errors import InputError

Split = Literal["bands", "patches", "columns", "views"]


@dataclass(frozen=True)
class OpenML:
    """How to fetch a set from openml.org, and what its rows are."""

    id: int
    picture: tuple[int, int, int] | None = None  # channels, height, width of a row
    train: int | None = None  # the first so many rows are the official training rows


@dataclass(frozen=True)
class DataSet:
    name: str
    title: str
    size: str
    split: Split
    parties: int
    citation: str
    licence: str
    where: str = ""
    embedded: bool = False
    file: str = ""  # in the data folder; "<name>.npz" unless given
    subset: tuple[str, str] | None = None  # a smaller file that may be used, and the note for it
    openml: OpenML | None = None
    goal: GoalName = "classes"
    notes: tuple[str, ...] = ()

    @property
    def filename(self) -> str:
        return self.file or f"{self.name}.npz"


_UCI = "CC BY 4.0 (UCI)"
_SKLEARN = "comes with scikit-learn (BSD-3-Clause)"
_LEAKS = "three recordings per person: a random split puts one person on both sides"

_ENTRIES = (
    DataSet(
        "digits", "Handwritten digits, 8×8", "1,797 rows, 8×8 pixels, 10 classes", "bands", 4,
        "Alpaydin and Kaynak, UCI Machine Learning Repository, 1998", _SKLEARN, embedded=True,
    ),
    DataSet(
        "breast_cancer", "Breast cancer Wisconsin (diagnostic)", "569 rows, 30 columns, 2 classes",
        "columns", 3, "Wolberg, Mangasarian, Street, Street, UCI, 1995", _SKLEARN, embedded=True,
    ),
    DataSet(
        "wine", "Wine recognition", "178 rows, 13 columns, 3 classes", "columns", 3,
        "Aeberhard and Forina, UCI, 1991", _SKLEARN, embedded=True,
    ),
    DataSet(
        "diabetes", "Diabetes progression after one year", "442 rows, 10 columns, a number",
        "columns", 3, "Efron, Hastie, Johnstone, Tibshirani, Annals of Statistics 32(2), 2004",
        _SKLEARN, embedded=True, goal="number",
    ),
    DataSet(
        "mnist", "MNIST handwritten digits", "60,000 + 10,000 rows, 28×28 pixels, 10 classes",
        "bands", 4, "LeCun, Bottou, Bengio, Haffner, Proc. IEEE 86(11), 1998",
        "commonly stated as CC BY-SA 3.0",
        'OpenML 554 ("mnist_784") or torchvision.datasets.MNIST',
        openml=OpenML(554, (1, 28, 28), 60_000),
    ),
    DataSet(
        "fashion_mnist", "Fashion-MNIST", "60,000 + 10,000 rows, 28×28 pixels, 10 classes",
        "bands", 4, "Xiao, Rasul, Vollgraf, arXiv:1708.07747, 2017", "MIT",
        "OpenML 40996 or torchvision.datasets.FashionMNIST",
        openml=OpenML(40996, (1, 28, 28), 60_000),
    ),
    DataSet(
        "cifar10", "CIFAR-10", "50,000 + 10,000 rows, 32×32×3 pixels, 10 classes", "bands", 4,
        "Krizhevsky, technical report, 2009", "none stated; the authors ask for the citation",
        "OpenML 40927 or torchvision.datasets.CIFAR10",
        subset=("cifar10_20k.npz", "subset: 20,000 of 50,000 training rows"),
        openml=OpenML(40927, (3, 32, 32), 50_000),
    ),
    DataSet(
        "emnist_balanced", "EMNIST Balanced", "112,800 + 18,800 rows, 28×28 pixels, 47 classes",
        "bands", 28, "Cohen, Afshar, Tapson, van Schaik, IJCNN 2017", "see NIST",
        'OpenML 41039 or torchvision.datasets.EMNIST(split="balanced")',
        openml=OpenML(41039, (1, 28, 28), 112_800),
    ),
    DataSet(
        "credit_default", "Default of credit card clients (Taiwan, 2005)",
        "30,000 rows, 23 columns, 2 classes", "columns", 11,
        "Yeh and Lien, Expert Systems with Applications 36(2), 2009", _UCI,
        "OpenML 42477 or UCI 350 (ID column dropped)", openml=OpenML(42477),
    ),
    DataSet(
        "handwritten", "Handwritten numerals, six feature sets (mfeat)",
        "2,000 rows, 649 columns in 6 views, 10 classes", "views", 6,
        "Duin, UCI Machine Learning Repository, 1998", _UCI,
        "UCI 72 (arrays view0…view5 in the order fou, fac, kar, pix, zer, mor, and y)",
        file="handwritten_mfeat.npz",
    ),
    DataSet(
        "parkinsons", "Parkinson's disease classification (speech)",
        "756 rows, 754 columns, 2 classes", "columns", 10,
        "Sakar et al., Applied Soft Computing 74, 2019", _UCI,
        "UCI 470 (arrays x and y; leave the id of the person out)", notes=(_LEAKS,),
    ),
    DataSet(
        "parkinsons_oxford", "Oxford Parkinson's detection (another, smaller set)",
        "195 rows, 22 columns, 2 classes", "columns", 2,
        "Little et al., BioMedical Engineering OnLine 6:23, 2007", _UCI,
        "UCI 174 (arrays x and y)", notes=("not the 756-row Parkinson's set of the papers",),
    ),
    DataSet(
        "caltech7", "Caltech101-7, six feature sets",
        "1,474 rows, 3,766 columns in 6 views, 7 classes", "views", 6,
        "Li, Andreeto, Ranzato, Perona, Caltech 101, 2022", "CC BY 4.0 (Caltech 101)",
        "the Caltech101-7 multi-view features, as arrays view0…view5 and y",
    ),
    DataSet(
        "starcraft_mnist", "StarCraftMNIST", "60,000 + 10,000 rows, 28×28 pixels, 10 classes",
        "patches", 16, "Kulinski, Waytowich, Hare, Inouye, CVPR 2023", "see source",
        "https://starcraftdata.davidinouye.com (arrays x_train, y_train, x_test, y_test)",
    ),
    DataSet(
        "nus_wide", "NUS-WIDE, image and text features",
        "70,000 rows, 1,634 columns in 4 views, 5 classes", "views", 4,
        "Chua et al., CIVR 2009", "see source",
        "the NUS-WIDE page of the National University of Singapore (arrays view0…view3 and y)",
    ),
    DataSet(
        "modelnet40", "ModelNet40, shaded pictures from 4 sides",
        "12,311 rows, 4 views, 40 classes", "views", 4, "Wu et al., CVPR 2015", "see source",
        "https://modelnet.cs.princeton.edu (arrays view0…view3 and y)",
    ),
)  # fmt: skip

CATALOGUE: dict[str, DataSet] = {entry.name: entry for entry in _ENTRIES}


def entry(name: str) -> DataSet:
    if name not in CATALOGUE:
        raise InputError(
            f"data.dataset: no data set {name!r}{nearest(name, CATALOGUE)}. "
            "`colonnade datasets` lists them; your own file goes into data.path."
        )
    return CATALOGUE[name]
