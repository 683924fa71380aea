"""FEMNIST from LEAF's JSON folders and from npz files: the same examples, writers kept, damage refused by name."""

import json

import numpy as np
import pytest
import torch

from dpflbench.errors import DataError
from dpflbench.randomness import Streams
from dpflbench.tasks.datasets import load_task
from dpflbench.tasks.femnist import Femnist
from dpflbench.tasks.partition import Dirichlet, Writer


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch, request):
    if "shared_data" not in request.fixturenames:
        monkeypatch.setenv("DPFLBENCH_CACHE", str(tmp_path / "cache"))


def write_npz(root, name="femnist_writers.npz", sizes=(20, 10), ids=("f0000_14", "f0001_41"), **changes):
    folder = root / "femnist"
    folder.mkdir(parents=True, exist_ok=True)
    n = sum(sizes)
    whole = {
        "images": np.random.default_rng(0).integers(0, 256, (n, 28, 28), dtype=np.uint8),
        "labels": (np.arange(n) % 62).astype(np.uint8),
        "writer": np.repeat(np.arange(len(sizes)), sizes).astype(np.uint16),
        "writer_ids": np.array(ids),
    }
    np.savez_compressed(folder / name, **{k: v for k, v in {**whole, **changes}.items() if v is not None})
    return root


def write_leaf(root, images, labels, change=lambda shard: shard, folder="femnist/data"):
    """LEAF's folders: one writer in each training shard, all of them in one test shard; the last picture of each is for
    testing.
    """
    users = {"train": [], "test": []}
    for user, (x, y) in enumerate(zip(images, labels, strict=True)):
        users["train"].append((f"f{user:04d}_07", x[:-1], y[:-1]))
        users["test"].append((f"f{user:04d}_07", x[-1:], y[-1:]))
    shards = {"train": [[user] for user in users["train"]], "test": [users["test"]]}
    for part, lists in shards.items():
        where = root / folder / part
        where.mkdir(parents=True)
        for number, shard in enumerate(lists):
            data = {u: {"x": (x.reshape(-1, 784) / 255.0).tolist(), "y": y.tolist()} for u, x, y in shard}
            content = {"users": list(data), "num_samples": [len(d["y"]) for d in data.values()], "user_data": data}
            name = f"all_data_{number}_niid_05_keep_0_{part}_9.json"
            (where / name).write_text(json.dumps(change(content)))
    return root


@pytest.fixture
def pictures():
    rng = np.random.default_rng(3)
    return [rng.integers(0, 256, (n, 28, 28)) for n in (4, 3)], [np.array([0, 61, 10, 5]), np.array([36, 35, 9])]


def test_the_first_nine_tenths_of_each_writer_of_an_npz_file_train(tmp_path):
    examples = Femnist().load(write_npz(tmp_path))
    assert torch.bincount(examples.groups).tolist() == [18, 9]
    assert torch.bincount(examples.test_groups).tolist() == [2, 1]
    assert examples.y_train.tolist() == [*range(18), *range(20, 29)]
    assert examples.y_test.tolist() == [18, 19, 29]
    assert examples.n_classes == 62
    assert examples.x_train.shape == (27, 1, 28, 28)


def test_leaf_shards_keep_leafs_own_split_bytes_and_writers(tmp_path, pictures):
    images, labels = pictures
    examples = Femnist().load(write_leaf(tmp_path, images, labels))
    assert examples.groups.tolist() == [0, 0, 0, 1, 1]
    assert examples.test_groups.tolist() == [0, 1]
    assert examples.y_train.tolist() == [0, 61, 10, 36, 35]
    assert examples.y_test.tolist() == [5, 9]
    assert np.array_equal(examples.x_train[:3, 0].numpy(), images[0][:3])
    assert np.array_equal(examples.x_test[1, 0].numpy(), images[1][2])


@pytest.mark.parametrize("folder", ["femnist", "leaf/data/femnist/data"])
def test_leaf_folders_are_found_where_people_have_them(tmp_path, pictures, folder):
    root = write_leaf(tmp_path, *pictures, folder=folder)
    assert Femnist().availability(root).detail == "complete: 3 files"
    assert len(Femnist().load(root).y_train) == 5


def test_partial_writers_join_when_asked_for(tmp_path):
    root = write_npz(tmp_path)
    assert not Femnist("all").availability(root).found
    with pytest.raises(DataError, match=r"looked for .*femnist_partial_writers\.npz"):
        Femnist("all").load(root)
    write_npz(root, "femnist_partial_writers.npz", (10,), ("f0002_00",))
    both = Femnist("all").load(root)
    assert torch.bincount(both.groups).tolist() == [18, 9, 9]
    assert Femnist("all").digest(root) != Femnist().digest(root)
    write_npz(root, "femnist_partial_writers.npz", (10,), ("f0001_41",))
    with pytest.raises(DataError, match=r"holds a writer that femnist_writers\.npz holds too"):
        Femnist("all").load(root)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"labels": np.full(30, 62, dtype=np.uint8)}, "labels from 62 to 62 .*allowed: 0 to 61"),
        ({"images": np.zeros((30, 28, 27), dtype=np.uint8)}, r"images are uint8 \[30, 28, 27\]"),
        ({"images": np.zeros((30, 28, 28), dtype=np.float32)}, "images are float32"),
        ({"labels": np.zeros(29, dtype=np.uint8)}, "expected one an image"),
        ({"writer": np.full(30, 2, dtype=np.uint16)}, "writer 2; allowed: 0 to 1"),
        ({"writer": None}, "expected images, labels, writer and writer_ids"),
    ],
)
def test_npz_files_that_contradict_themselves_are_refused_by_name(tmp_path, changes, text):
    with pytest.raises(DataError, match=text) as caught:
        Femnist().load(write_npz(tmp_path, **changes))
    assert "femnist_writers.npz" in str(caught.value)


def test_a_truncated_npz_file_is_refused_by_name(tmp_path):
    path = write_npz(tmp_path) / "femnist" / "femnist_writers.npz"
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(DataError, match=r"femnist_writers\.npz: cannot be read"):
        Femnist().load(tmp_path)


def edited(key, value):
    def change(shard):
        for data in shard["user_data"].values():
            data[key] = value
        return shard

    return change


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda shard: {"users": []}, "no shard of LEAF"),
        (edited("y", [70]), "writer f0000_07: x is"),
        (edited("x", [[0.5] * 783]), r"x is \[1, 783\]"),
        (edited("x", None), "writer f0000_07"),
    ],
)
def test_damaged_leaf_shards_are_refused_by_name(tmp_path, pictures, change, text):
    with pytest.raises(DataError, match=text) as caught:
        Femnist().load(write_leaf(tmp_path, *pictures, change=change))
    assert ".json" in str(caught.value)


@pytest.mark.parametrize("value", [float("nan"), 1.5, -0.1, 0.1234])
def test_pixels_that_are_none_are_refused(tmp_path, pictures, value):
    def change(shard):
        for data in shard["user_data"].values():
            data["x"][0][0] = value
        return shard

    with pytest.raises(DataError, match="values other than 0/255 to 255/255"):
        Femnist().load(write_leaf(tmp_path, *pictures, change=change))


def test_leaf_labels_out_of_range_are_refused(tmp_path, pictures):
    images, _ = pictures
    with pytest.raises(DataError, match="labels from 0 to 62"):
        Femnist().load(write_leaf(tmp_path, images, [np.array([0, 62, 1, 2]), np.array([1, 2, 3])]))


def test_a_cut_off_leaf_shard_is_refused_by_name(tmp_path, pictures):
    root = write_leaf(tmp_path, *pictures)
    path = next((root / "femnist" / "data" / "test").iterdir())
    path.write_text(path.read_text()[:-30])
    with pytest.raises(DataError, match=r"test_9\.json: no shard of LEAF"):
        Femnist().load(root)


def real(shared_data, writers):
    if not Femnist(writers).availability(shared_data).found:
        pytest.skip("needs femnist/*.npz in the data folder")
    return Femnist(writers)


@pytest.mark.shared_data
def test_the_papers_sample_has_its_counts(shared_data):
    task = load_task(
        real(shared_data, "all"), None, Dirichlet(3.0), 100, 0.1, "paper", Streams(0), shared_data, limit=80_526
    )
    assert task.train.sizes.sum() + task.holdout.sizes.sum() == 72_474
    assert len(task.test_y) == 8_052
    assert task.n_classes == 62
    assert task.input_shape == (1, 28, 28)


@pytest.mark.shared_data
def test_a_client_can_be_a_writer(shared_data):
    task = load_task(real(shared_data, "complete"), None, Writer(40), 400, 0.1, "official", Streams(0), shared_data)
    assert len(task.train.sizes) == 400
    assert (task.train.sizes + task.holdout.sizes).min() >= 40
    assert (task.train.sizes + task.holdout.sizes).max() <= 320  # 90 % of the most productive writer's 355
