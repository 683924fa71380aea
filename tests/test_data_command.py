"""`dpflbench data` says what is there and how to get the rest; `data get` downloads through torchvision."""

from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from dpflbench.cli.data import app
from dpflbench.errors import DataError, DpflbenchError
from dpflbench.tasks import torchvision_data


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch):
    monkeypatch.delenv("DPFLBENCH_DATA", raising=False)


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_without_a_folder_every_data_set_is_listed_with_what_gets_it():
    result = call()
    assert result.exit_code == 0
    for text in (
        "none (set $DPFLBENCH_DATA or --data)",
        "complete, embedded in the package",
        "dpflbench data get cifar10",
        "LEAF",
        "your own file: give path",
        "licence",
        "sha256 ",
        "may be deleted at any time",
    ):
        assert text in result.output


def test_a_folder_is_looked_through_and_damage_is_shown(tmp_path):
    raw = tmp_path / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (raw / f"{name}-ubyte").write_bytes(b"not it")
    np.savez(tmp_path / "mine.npz", x=1)
    result = call("--data", tmp_path)
    assert result.exit_code == 0
    assert "damaged: " in result.output
    assert "train-images-idx3-ubyte: content has SHA-256" in result.output
    assert "missing: data_batch_1 and 6 more" in result.output


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    assert isinstance(call("--data", tmp_path / "gone").exception, DataError)


def test_get_downloads_through_torchvisions_class_and_checks_what_came(tmp_path, monkeypatch):
    asked = []

    def fashion(root, download):
        asked.append((root, download))
        (root / "FashionMNIST" / "raw").mkdir(parents=True)
        for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
            (root / "FashionMNIST" / "raw" / f"{name}-ubyte").write_bytes(b"not it")

    monkeypatch.setattr(torchvision_data, "torchvision_datasets", lambda: SimpleNamespace(FashionMNIST=fashion))
    result = call("get", "fashion_mnist", "--data", tmp_path / "new")
    assert asked == [(tmp_path / "new", True)]
    assert "content has SHA-256" in str(result.exception)


def test_a_download_that_fails_is_one_line(tmp_path, monkeypatch):
    def unreachable(root, download):
        raise RuntimeError("Error downloading x:\nTried y, got:\n<urlopen error>\n")

    monkeypatch.setattr(torchvision_data, "torchvision_datasets", lambda: SimpleNamespace(CIFAR10=unreachable))
    error = call("get", "cifar10", "--data", tmp_path).exception
    assert isinstance(error, DataError)
    assert (
        str(error) == "cifar10: torchvision could not download it (Error downloading x: Tried y, got: <urlopen error>)"
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("get", "cifr10"), "did you mean 'cifar10'?"),
        (("get", "npz"), "there is nothing to download"),
        (("get", "lending_club"), "no download; get it: https"),
        (("get", "cifar10"), "no data folder given"),
    ],
)
def test_what_cannot_be_got_is_refused_with_the_reason(arguments, text):
    error = call(*arguments).exception
    assert isinstance(error, DpflbenchError)
    assert text in str(error)


def test_what_is_there_already_is_not_fetched_again():
    result = call("get", "mnist")
    assert result.exit_code == 0
    assert "already there" in result.output
