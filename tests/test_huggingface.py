"""Folders of Hugging Face datasets: read back, refused by name; with the real library where it is installed."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from dpflbench.errors import DataError
from dpflbench.suite_file import moved
from dpflbench.tasks import huggingface
from dpflbench.tasks.huggingface import HuggingFace

wanted = pytest.mark.skipif(find_spec("datasets") is None, reason="needs the extra huggingface")


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DPFLBENCH_CACHE", str(tmp_path / "cache"))


def saved(folder: Path, **columns):
    from datasets import Dataset, DatasetDict

    parts = {"train": 6, "test": 2}
    made = {part: Dataset.from_dict({k: list(v[:n]) for k, v in columns.items()}) for part, n in parts.items()}
    DatasetDict(made).save_to_disk(str(folder))
    return folder


def test_a_folder_that_is_not_there_and_a_library_that_is_not_are_one_line(tmp_path, monkeypatch, own_cache):
    with pytest.raises(DataError, match=r"looked for .*nowhere, not found; make it: datasets\.load_dataset"):
        HuggingFace("nowhere").digest(tmp_path)
    assert not HuggingFace("nowhere").availability(tmp_path).found
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "dataset_dict.json").write_text("{}")
    monkeypatch.setattr(huggingface, "find_spec", lambda name: None)
    assert HuggingFace("there").availability(tmp_path).detail == "found, but not the library datasets"
    with pytest.raises(DataError, match="needs datasets; pip install"):
        HuggingFace("there").load(tmp_path)


def test_the_digest_is_of_names_and_contents_and_not_of_what_the_library_keeps_there(tmp_path):
    folder = tmp_path / "d"
    folder.mkdir()
    (folder / "dataset_dict.json").write_text("{}")
    before = HuggingFace("d").digest(tmp_path)
    (folder / "cache-1.arrow").write_text("x")
    assert HuggingFace("d").digest(tmp_path) == before
    (folder / "data.arrow").write_text("x")
    assert HuggingFace("d").digest(tmp_path) != before


def test_its_path_starts_at_the_suite_like_that_of_a_file(tmp_path):
    given = {"name": "huggingface", "path": "d"}
    assert moved("task.dataset", given, tmp_path, tmp_path / "below")["path"] == "../d"
    (tmp_path / "d").mkdir()
    assert HuggingFace("d").beside(tmp_path, None).path == str(tmp_path / "d")
    assert HuggingFace("d").beside(tmp_path / "elsewhere", tmp_path).path == str(tmp_path / "d")


@wanted
def test_columns_of_numbers_and_lists_are_read_with_labels_and_owners(tmp_path, own_cache):
    columns = {"a": np.arange(6.0), "b": np.eye(6, 3), "label": [0, 1, 2, 0, 1, 2], "who": [5, 5, 6, 6, 7, 7]}
    saved(tmp_path / "d", **columns)
    examples = HuggingFace("d", group="who").load(tmp_path)
    assert examples.x_train.shape == (6, 4)
    assert examples.x_train[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert examples.y_train.tolist() == columns["label"]
    assert (examples.n_classes, examples.groups.tolist()) == (3, columns["who"])
    only = HuggingFace("d", inputs=("b",)).load(tmp_path)
    assert only.x_train.shape == (6, 3)
    target = HuggingFace("d", inputs=("b",), label="a").load(tmp_path)
    assert (target.n_classes, target.y_train.dtype) == (0, torch.float32)


@wanted
def test_images_are_bytes_and_text_is_refused_by_its_column(tmp_path, own_cache):
    from datasets import ClassLabel, Dataset, DatasetDict, Features, Image
    from PIL import Image as Picture

    pictures = [Picture.fromarray(np.full((4, 5), 40 * i, dtype=np.uint8)) for i in range(6)]
    features = Features({"image": Image(), "label": ClassLabel(names=["no", "yes"])})
    part = Dataset.from_dict({"image": pictures, "label": [0, 1] * 3}, features=features)
    DatasetDict({"train": part, "test": part}).save_to_disk(str(tmp_path / "i"))
    examples = HuggingFace("i").load(tmp_path)
    assert (examples.x_train.shape, examples.x_train.dtype) == ((6, 1, 4, 5), torch.uint8)
    assert examples.x_train[2].unique().tolist() == [80]
    saved(tmp_path / "t", text=list("abcdef"), label=[0, 1] * 3)
    with pytest.raises(DataError, match=r"column 'text' holds Value\(.*string.*\); allowed: numbers"):
        HuggingFace("t").load(tmp_path)
    with pytest.raises(DataError, match="no column 'y'; found text, label"):
        HuggingFace("t", label="y", inputs=("label",)).load(tmp_path)
    with pytest.raises(DataError, match="no split 'validation'; found train, test: name it by `test`"):
        HuggingFace("t", inputs=("label",), test="validation").load(tmp_path)


@wanted
def test_a_suite_runs_on_a_folder_beside_it(tmp_path, tiny, catalogue, own_cache, monkeypatch):
    from datasets import Dataset, DatasetDict

    import dpflbench as db

    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    x = rng.normal(size=(300, 3)) + y[:, None]
    part = {"x": x.tolist(), "label": y.tolist()}
    DatasetDict({"train": Dataset.from_dict(part), "test": Dataset.from_dict(part)}).save_to_disk(str(tmp_path / "d"))
    monkeypatch.chdir(tmp_path)
    tiny["task"]["dataset"] = {"name": "huggingface", "path": "d"}
    results = db.run(tiny, "results", isolated=False, progress=False)
    assert {r.status for r in results.records.values()} == {"done"}
    assert all(r.config["task"]["dataset"]["path"] == "d" for r in results.records.values())
