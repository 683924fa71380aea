"""Lending Club: columns, encodings and refusals on generated files in the genuine formats, and the real file where it
is.
"""

import gzip

import numpy as np
import pytest
import torch

from dpflbench.errors import DataError
from dpflbench.randomness import Streams
from dpflbench.tasks.datasets import load_task
from dpflbench.tasks.features import Pca
from dpflbench.tasks.lending import LendingClub
from dpflbench.tasks.partition import Dirichlet

HEADER = (
    "id,loan_amnt,term,int_rate,installment,grade,home_ownership,issue_d,annual_inc,"
    "total_pymnt,policy_code,settlement_term"
)
ROWS = [
    "1, 5000, 36 months,10.65,162.87,B,RENT,Dec-2011,24000,5863.15,1,",
    "2, 2500, 60 months,15.27,59.83,C,OWN,Nov-2011,,1014.53,1,",
    "3, 2400, 36 months,15.96,84.33,C,RENT,Jan-2011,12252,3005.66,1,3",
    "4,10000, 36 months,13.49,339.31,C,MORTGAGE,Dec-2010,49200,12226.30,1,",
    "5, 3000, 60 months,12.69,67.79,B,OWN,Dec-2011,80000,3242.17,1,",
]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch, request):
    if "shared_data" not in request.fixturenames:  # the real file takes seconds to read: kept between sessions
        monkeypatch.setenv("DPFLBENCH_CACHE", str(tmp_path / "cache"))


def write(root, rows=ROWS, header=HEADER, name="loan.csv", before="", after=""):
    folder = root / "lending_club"
    folder.mkdir(parents=True, exist_ok=True)
    text = before + "\n".join([header, *rows]) + "\n" + after
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return root


def test_identifiers_nulls_leaks_and_constants_are_dropped_and_the_rest_become_numbers(tmp_path):
    examples = LendingClub().load(write(tmp_path))
    x = torch.cat([examples.x_train, examples.x_test])
    # loan_amnt, term, home_ownership (MORTGAGE 0, OWN 1, RENT 2), issue_d in months; annual_inc has a NULL, policy_code
    # is constant
    assert x.tolist() == [
        [5000.0, 36.0, 2.0, 24144.0],
        [2500.0, 60.0, 1.0, 24143.0],
        [2400.0, 36.0, 2.0, 24133.0],
        [10000.0, 36.0, 0.0, 24132.0],
        [3000.0, 60.0, 1.0, 24144.0],
    ]
    assert examples.y_train.tolist() == pytest.approx([10.65, 15.27, 15.96, 13.49])
    assert examples.y_test.tolist() == pytest.approx([12.69])  # every fifth record
    assert examples.n_classes == 0


def test_leaking_columns_can_be_kept(tmp_path):
    kept = LendingClub(leakage="keep").load(write(tmp_path))
    assert kept.x_train.shape[1] == 7  # installment, grade and total_pymnt are back


def test_packed_and_plain_files_are_the_same_data(tmp_path):
    plain, packed = write(tmp_path / "plain"), write(tmp_path / "packed", name="loan.csv.gz")
    assert LendingClub().digest(plain) == LendingClub().digest(packed)
    assert torch.equal(LendingClub().load(plain).x_train, LendingClub().load(packed).x_train)


def test_the_2007_to_2015_files_columns_are_understood(tmp_path):
    header = (
        "id,member_id,loan_amnt,term,int_rate,emp_title,url,desc,title,zip_code,initial_list_status,dti,next_pymnt_d"
    )
    rows = [
        '1077501,1296599,5000, 36 months,10.65,,https://x/1,"borrowed, to pay",Computer,860xx,f,27.65,',
        "1077430,1314167,2500, 60 months,15.27,Ryder,https://x/2,,bike,309xx,w,1.0,Feb-2016",
    ]
    examples = LendingClub().load(write(tmp_path, rows, header))
    assert examples.x_train.tolist() == [[5000.0, 36.0, 0.0, pytest.approx(27.65)], [2500.0, 60.0, 1.0, 1.0]]


def test_a_note_above_the_header_percent_signs_and_totals_below_are_understood(tmp_path):
    rows = [row.replace("10.65", "10.65%").replace("15.27", "15.27%") for row in ROWS]
    noted = write(
        tmp_path, rows, before="Notes offered by Prospectus\n", after="Total amount funded: 460296150,,,,,,,,,,,\n"
    )
    assert torch.cat([LendingClub().load(noted).y_train]).tolist() == pytest.approx([10.65, 15.27, 15.96, 13.49])


def test_a_column_with_nulls_only_late_in_a_long_file_is_dropped(tmp_path, monkeypatch):
    monkeypatch.setattr("dpflbench.tasks.lending.ROWS", 2)
    rows = [*ROWS[:4], "5,,60 months,12.69,67.79,B,OWN,Dec-2011,80000,3242.17,1,"]
    assert LendingClub().load(write(tmp_path, rows)).x_train.shape[1] == 3  # loan_amnt is gone


def test_one_of_several_files_must_be_named(tmp_path):
    root = write(write(tmp_path), name="other.csv")
    with pytest.raises(DataError, match=r"loan\.csv, other\.csv in .*; name one with file"):
        LendingClub().load(root)
    assert "name one with file" in LendingClub().availability(root).detail
    assert len(LendingClub(file="other.csv").load(root).y_train) == 4
    with pytest.raises(DataError, match=r"looked for lending_club/gone\.csv"):
        LendingClub(file="gone.csv").load(root)


@pytest.mark.parametrize(
    ("header", "rows", "text"),
    [
        ("a,b", ["1,2"], "no column int_rate"),
        ("int_rate,dti", ["twelve,1", "3,2"], "int_rate holds values that are no per cent"),
        ("int_rate,dti", ["120,1", "3,2"], "int_rate holds values that are no per cent"),
        ("int_rate,dti", ["12,inf", "3,2"], "column dti holds values that are not finite"),
        ("int_rate,dti", ["12,1", "3,"], "no column without NULLs is left"),
    ],
)
def test_files_that_are_no_lending_club_data_are_refused_by_name(tmp_path, header, rows, text):
    with pytest.raises(DataError, match=text) as caught:
        LendingClub().load(write(tmp_path, rows, header))
    assert "loan.csv" in str(caught.value)


def test_a_truncated_file_is_refused_by_name(tmp_path):
    root = write(tmp_path, ROWS * 200, name="loan.csv.gz")
    path = root / "lending_club" / "loan.csv.gz"
    path.write_bytes(path.read_bytes()[:-60])
    with pytest.raises(DataError, match=r"loan\.csv\.gz: cannot be read to its end"):
        LendingClub().load(root)


@pytest.mark.shared_data
def test_the_papers_task_has_its_counts_and_least_squares_beats_the_mean(shared_data):
    if not LendingClub().availability(shared_data).found:
        pytest.skip("needs lending_club/*.csv.gz in the data folder")
    features = Pca(10, scale="each", standardise=True)
    task = load_task(LendingClub(), features, Dirichlet(3.0), 100, 0.1, "paper", Streams(0), shared_data, limit=40_000)
    assert task.input_shape == (10,)
    assert len(task.test_y) == 8_000
    assert task.train.sizes.sum() + task.holdout.sizes.sum() == 32_000
    assert 12.0 < task.references["predict_the_mean"] < 15.0
    assert 9.0 < task.references["least_squares"] < 11.0
    leaky = load_task(
        LendingClub("keep"), features, Dirichlet(3.0), 100, 0.1, "paper", Streams(0), shared_data, limit=40_000
    )
    assert leaky.references["least_squares"] < 3.0  # what the report must say if it is kept
    assert np.isfinite(task.train.x.numpy()).all()
