"""MNIST in the package, torchvision's data sets, npz files; every kind of damage refused by name; nothing written where
one looks.
"""

import gzip
import hashlib
import io
import pickle
import tarfile
import time
import zipfile

import numpy as np
import pytest
import torch

from dpflbench.errors import DataError
from dpflbench.interfaces import Dataset
from dpflbench.tasks import cifar10, files, idx_images, mnist
from dpflbench.tasks.cifar10 import Cifar10
from dpflbench.tasks.datasets import DATASETS
from dpflbench.tasks.idx_images import Emnist, FashionMnist, check_idx
from dpflbench.tasks.mnist import Mnist
from dpflbench.tasks.npz import Npz
from dpflbench.tasks.torchvision_data import torchvision_datasets


def idx(array):
    """An array as an IDX file of unsigned bytes."""
    header = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    return header + array.astype(np.uint8).tobytes()


def snapshot(folder):
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")}


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DPFLBENCH_CACHE", str(tmp_path / "cache"))


# ---------------------------------------------------------------- all of them


def test_every_data_set_is_there_and_keeps_the_interface():
    assert set(DATASETS) == {
        "mnist",
        "fashion_mnist",
        "emnist",
        "femnist",
        "cifar10",
        "lending_club",
        "npz",
        "huggingface",
    }
    for name, factory in DATASETS.items():
        assert isinstance(factory(path="x") if name in ("npz", "huggingface") else factory(), Dataset)


@pytest.mark.parametrize("name", ["fashion_mnist", "emnist", "femnist", "cifar10", "lending_club"])
def test_missing_data_is_one_line_with_what_where_and_how(name, tmp_path):
    for call in (DATASETS[name]().digest, DATASETS[name]().load):
        with pytest.raises(DataError) as caught:
            call(tmp_path)
        text = str(caught.value)
        assert text.startswith(f"{name}: looked for ")
        assert str(tmp_path) in text
        assert "get it: " in text
        assert "\n" not in text
    with pytest.raises(DataError, match=r"no data folder given; set \$DPFLBENCH_DATA or --data"):
        DATASETS[name]().load(None)
    assert not DATASETS[name]().availability(tmp_path).found
    assert not DATASETS[name]().availability(None).found


# ---------------------------------------------------------------- MNIST


def test_mnist_is_embedded_in_one_file_of_at_most_12_mb_beside_its_provenance():
    assert mnist.EMBEDDED.stat().st_size <= 12_000_000
    text = mnist.EMBEDDED.with_name("mnist.md").read_text(encoding="utf-8")
    assert "CC BY-SA 3.0" in text
    assert all(file.sha256 in text for file in mnist.CONTENT.values())


def test_mnist_has_its_official_counts():
    examples = Mnist().load(None)
    assert examples.x_train.shape == (60_000, 1, 28, 28)
    assert examples.x_test.shape == (10_000, 1, 28, 28)
    assert examples.x_train.dtype == torch.uint8
    assert torch.bincount(examples.y_train).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert torch.bincount(examples.y_test).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert examples.n_classes == 10


def test_mnist_loads_in_under_a_second_when_warm():
    Mnist().load(None)
    started = time.perf_counter()
    Mnist().load(None)
    assert time.perf_counter() - started < 1.0


def test_a_damaged_installation_is_said_so(tmp_path, monkeypatch, own_cache):
    broken = tmp_path / "mnist.idx.xz"
    broken.write_bytes(mnist.EMBEDDED.read_bytes()[:1000])
    monkeypatch.setattr(mnist, "EMBEDDED", broken)
    with pytest.raises(DataError, match="reinstall dpflbench"):
        Mnist().load(None)


@pytest.mark.shared_data
def test_embedded_mnist_equals_the_original_files_read_by_torchvision(shared_data, tmp_path):
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name in mnist.CONTENT:
        packed = shared_data / "MNIST" / "raw" / f"{name}.gz"
        if not packed.exists():
            pytest.skip("needs MNIST/raw/*.gz in the data folder")
        (raw / name).write_bytes(gzip.decompress(packed.read_bytes()))
    examples = Mnist().load(None)
    for train, x, y in ((True, examples.x_train, examples.y_train), (False, examples.x_test, examples.y_test)):
        read = torchvision_datasets().MNIST(tmp_path, train=train)
        assert torch.equal(read.data, x.squeeze(1))
        assert torch.equal(read.targets, y)


# ---------------------------------------------------------------- IDX files


@pytest.mark.shared_data
def test_fashion_mnist_is_read_from_packed_files_without_touching_them(shared_data):
    if not FashionMnist().availability(shared_data).found:
        pytest.skip("needs FashionMNIST/raw in the data folder")
    before = snapshot(shared_data)
    examples = FashionMnist().load(shared_data)
    assert snapshot(shared_data) == before
    assert examples.x_train.shape == (60_000, 1, 28, 28)
    assert torch.bincount(examples.y_train).tolist() == [6000] * 10
    assert torch.bincount(examples.y_test).tolist() == [1000] * 10
    assert examples.x_train.float().mean().item() / 255 == pytest.approx(0.2860, abs=1e-4)


def write_fashion(root, packed=True):
    """Four small files in the genuine format, which are of course not the published ones."""
    raw = root / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name in idx_images.FASHION:
        content = idx(rng.integers(0, 256, (5, 28, 28)) if "images" in name else np.array([0, 1, 2, 3, 9]))
        (raw / f"{name}.gz" if packed else raw / name).write_bytes(gzip.compress(content) if packed else content)
    return raw


def pretend_published(monkeypatch, raw):
    """Take the small files for the published ones."""
    found = {
        name: files.sha256(next(p for p in (raw / name, raw / f"{name}.gz") if p.exists()))
        for name in idx_images.FASHION
    }
    monkeypatch.setattr(idx_images, "FASHION", found)


def test_fashion_mnist_with_another_content_is_refused_by_name_and_digest(tmp_path, own_cache):
    raw = write_fashion(tmp_path / "data")
    found = hashlib.sha256(gzip.decompress((raw / "train-images-idx3-ubyte.gz").read_bytes())).hexdigest()
    for call in (FashionMnist().digest, FashionMnist().load):
        with pytest.raises(DataError, match=f"train-images-idx3-ubyte.gz: content has SHA-256 {found}"):
            call(tmp_path / "data")


@pytest.mark.parametrize("packed", [True, False])
def test_packed_and_unpacked_files_give_the_same_examples_and_digest(tmp_path, monkeypatch, own_cache, packed):
    raw = write_fashion(tmp_path / "data", packed)
    pretend_published(monkeypatch, raw)
    before = snapshot(tmp_path / "data")
    examples = FashionMnist().load(tmp_path / "data")
    assert examples.y_train.tolist() == [0, 1, 2, 3, 9]
    assert FashionMnist().digest(tmp_path / "data") == mnist.content_digest(list(idx_images.FASHION.values()))
    assert snapshot(tmp_path / "data") == before


def test_a_truncated_gzip_file_is_refused_by_name(tmp_path, own_cache):
    raw = write_fashion(tmp_path / "data")
    path = raw / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte\.gz: cannot be read to its end"):
        files.sha256(path)


@pytest.mark.parametrize(
    ("name", "raw", "text"),
    [
        ("a-idx3-ubyte", idx(np.zeros((2, 28, 28)))[:-1], "1583 bytes, its header announces 1584"),
        ("a-idx1-ubyte", idx(np.zeros(4)) + b"x", "13 bytes, its header announces 12"),
        ("a-idx3-ubyte", idx(np.zeros((2, 20, 28))), "pictures of 20 × 28; allowed: 28 × 28"),
        ("a-idx3-ubyte", idx(np.zeros(4)), "no IDX file of unsigned bytes with 3 dimension"),
        ("a-idx1-ubyte", b"", "no IDX file"),
    ],
)
def test_idx_files_that_contradict_themselves_are_refused(name, raw, text):
    with pytest.raises(DataError, match=text):
        check_idx(name, raw)


def write_emnist(root, variant="letters", how="gz", labels=(1, 2, 26)):
    raw = root / "EMNIST" / "raw"
    raw.mkdir(parents=True)
    image = np.zeros((len(labels), 28, 28))
    image[:, 3, 20] = 200  # published column-major: row 20, column 3 of the upright picture
    contents = {name: idx(image if "images" in name else np.array(labels)) for name in Emnist(variant).names()}
    if how == "zip":
        with zipfile.ZipFile(raw / "gzip.zip", "w") as archive:
            for name, content in contents.items():
                archive.writestr(f"gzip/{name}.gz", gzip.compress(content))
    else:
        for name, content in contents.items():
            (raw / (f"{name}.gz" if how == "gz" else name)).write_bytes(
                gzip.compress(content) if how == "gz" else content
            )
    return root


@pytest.mark.parametrize("how", ["gz", "plain", "zip"])
def test_emnist_letters_are_upright_and_counted_from_zero_however_they_are_packed(tmp_path, own_cache, how):
    root = write_emnist(tmp_path / "data", how=how)
    before = snapshot(root)
    examples = Emnist("letters").load(root)
    assert examples.y_train.tolist() == [0, 1, 25]
    assert examples.n_classes == 26
    assert examples.x_train[0, 0, 20, 3] == 200
    assert Emnist("letters").digest(root) == Emnist("letters").digest(write_emnist(tmp_path / "other", how="plain"))
    assert Emnist("letters").availability(root).found
    assert snapshot(root) == before


def test_emnist_labels_out_of_range_are_refused(tmp_path, own_cache):
    with pytest.raises(DataError, match="EMNIST train: labels from 0 to 26; allowed: 0 to 25"):
        Emnist("letters").load(write_emnist(tmp_path, labels=(1, 27)))


def test_a_broken_emnist_archive_is_refused_by_name(tmp_path, own_cache):
    root = write_emnist(tmp_path, how="zip")
    archive = root / "EMNIST" / "raw" / "gzip.zip"
    archive.write_bytes(archive.read_bytes()[:300])
    with pytest.raises(DataError, match=r"gzip\.zip: .* cannot be unpacked"):
        Emnist("letters").load(root)


# ---------------------------------------------------------------- CIFAR-10


@pytest.fixture
def small_cifar(tmp_path, monkeypatch, own_cache):
    """Two pictures a batch in the genuine format, taken for the published ones."""
    folder = tmp_path / "data" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name in cifar10.CONTENT:
        content = {
            "data": rng.integers(0, 256, (2, 3072), dtype=np.uint8),
            "labels": [3, 9],
            "label_names": list("abcdefghij"),
        }
        (folder / name).write_bytes(pickle.dumps(content))
    md5 = {name: hashlib.md5((folder / name).read_bytes()).hexdigest() for name in cifar10.CONTENT}
    reader = torchvision_datasets().CIFAR10
    monkeypatch.setattr(
        cifar10, "CONTENT", {n: hashlib.sha256((folder / n).read_bytes()).hexdigest() for n in cifar10.CONTENT}
    )
    monkeypatch.setattr(reader, "train_list", [[n, md5[n]] for n in md5 if n.startswith("data")])
    monkeypatch.setattr(reader, "test_list", [["test_batch", md5["test_batch"]]])
    monkeypatch.setattr(reader, "meta", {**reader.meta, "md5": md5["batches.meta"]})
    return tmp_path / "data"


def test_cifar10_is_read_by_torchvision_from_the_folder_and_from_the_archive(small_cifar, tmp_path):
    before = snapshot(small_cifar)
    examples = Cifar10().load(small_cifar)
    assert snapshot(small_cifar) == before
    assert examples.x_train.shape == (10, 3, 32, 32)
    assert examples.y_test.tolist() == [3, 9]
    first = pickle.loads((small_cifar / "cifar-10-batches-py" / "data_batch_1").read_bytes())["data"][0]
    assert np.array_equal(examples.x_train[0].numpy().ravel(), first)  # channels first, as stored
    packed = tmp_path / "packed"
    packed.mkdir()
    with tarfile.open(packed / "cifar-10-python.tar.gz", "w:gz") as archive:
        archive.add(small_cifar / "cifar-10-batches-py", "cifar-10-batches-py")
    assert Cifar10().availability(packed).found
    assert Cifar10().digest(packed) == Cifar10().digest(small_cifar)
    assert [path.name for path in packed.iterdir()] == ["cifar-10-python.tar.gz"]


def test_cifar10_batches_are_never_unpickled_unless_they_are_the_published_ones(small_cifar):
    class Evil:
        def __reduce__(self):
            return (pytest.fail, ("a foreign pickle was loaded",))

    (small_cifar / "cifar-10-batches-py" / "data_batch_2").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(DataError, match="data_batch_2: content has SHA-256"):
        Cifar10().load(small_cifar)


def test_a_cifar10_archive_with_another_content_is_refused(small_cifar, tmp_path):
    packed = tmp_path / "packed"
    packed.mkdir()
    with tarfile.open(packed / "cifar-10-python.tar.gz", "w:gz") as archive:
        for name in cifar10.CONTENT:
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = 3
            archive.addfile(member, io.BytesIO(b"abc"))
    with pytest.raises(DataError, match="data_batch_1: content has SHA-256"):
        Cifar10().load(packed)
    content = (packed / "cifar-10-python.tar.gz").read_bytes()
    (packed / "cifar-10-python.tar.gz").write_bytes(content[:60])
    with pytest.raises(DataError, match=r"cifar-10-python\.tar\.gz: cannot be unpacked"):
        Cifar10().load(packed)


def test_one_missing_cifar10_batch_is_named(small_cifar):
    (small_cifar / "cifar-10-batches-py" / "data_batch_4").unlink()
    assert "data_batch_4" in Cifar10().availability(small_cifar).detail
    with pytest.raises(DataError, match="looked for cifar-10-batches-py/data_batch_4"):
        Cifar10().load(small_cifar)


@pytest.mark.shared_data
def test_cifar10_has_its_official_counts_and_channel_means(shared_data):
    if not Cifar10().availability(shared_data).found:
        pytest.skip("needs cifar-10-batches-py in the data folder")
    examples = Cifar10().load(shared_data)
    assert examples.x_train.shape == (50_000, 3, 32, 32)
    assert torch.bincount(examples.y_train).tolist() == [5000] * 10
    assert torch.bincount(examples.y_test).tolist() == [1000] * 10
    means = examples.x_train.double().mean((0, 2, 3)) / 255
    assert means.tolist() == pytest.approx([0.49139968, 0.48215841, 0.44653091], abs=1e-6)


# ---------------------------------------------------------------- npz files


def arrays(**changes):
    rng = np.random.default_rng(0)
    whole = {
        "x_train": rng.normal(size=(6, 3)),
        "y_train": np.array([0, 1, 2, 0, 1, 2]),
        "x_test": rng.normal(size=(2, 3)),
        "y_test": np.array([2, 0]),
    }
    return {name: value for name, value in {**whole, **changes}.items() if value is not None}


def test_integer_labels_make_a_classification_and_float_targets_a_regression(tmp_path, own_cache):
    np.savez(tmp_path / "c.npz", **arrays())
    np.savez(tmp_path / "r.npz", **arrays(y_train=np.linspace(0, 1, 6), y_test=np.zeros(2)))
    classes, regression = Npz("c.npz").load(tmp_path), Npz(str(tmp_path / "r.npz")).load(None)
    assert classes.n_classes == 3
    assert classes.x_train.dtype == torch.float32
    assert classes.y_train.dtype == torch.int64
    assert regression.n_classes == 0
    assert regression.y_train.dtype == torch.float32


def test_natural_owners_come_along(tmp_path, own_cache):
    np.savez(tmp_path / "g.npz", **arrays(groups_train=np.arange(6), groups_test=np.array([7, 7])))
    examples = Npz("g.npz").load(tmp_path)
    assert examples.groups.tolist() == [0, 1, 2, 3, 4, 5]
    assert examples.test_groups.tolist() == [7, 7]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"x_test": None, "y_test": None}, "no array x_test, y_test"),
        ({"x_train": np.full((6, 3), np.nan)}, "x_train holds NaN or infinite"),
        ({"x_test": np.full((2, 3), np.inf)}, "x_test holds NaN or infinite"),
        ({"y_train": np.linspace(0, np.nan, 6), "y_test": np.zeros(2)}, "y_train holds NaN"),
        ({"y_train": np.array([0, 1, 2])}, r"y_train is int64 \[3\]; expected 6 numbers"),
        ({"x_test": np.zeros((2, 4))}, r"x_train holds float64 \[3\], x_test float64 \[4\]"),
        ({"y_test": np.array([2, 3])}, "labels from 0 to 3"),
        ({"y_train": np.array([-1, 1, 2, 0, 1, 2])}, "labels from -1 to 2"),
        ({"y_test": np.array([0.0, 1.0])}, "y_train is int64, y_test float64"),
        ({"x_train": np.array([["a", "b", "c"]] * 6)}, "x_train is <U1"),
        ({"x_train": np.array([[{}]] * 6, dtype=object)}, "bad.npz: an array of Python objects, or no .npz file"),
        ({"groups_train": np.arange(5)}, r"groups_train is int64 \[5\]"),
    ],
)
def test_npz_files_that_cannot_be_are_refused_by_name(tmp_path, own_cache, changes, text):
    np.savez(tmp_path / "bad.npz", **arrays(**changes))
    with pytest.raises(DataError, match=text) as caught:
        Npz("bad.npz").load(tmp_path)
    assert "bad.npz" in str(caught.value)


def test_truncated_and_missing_npz_files_are_refused_by_name(tmp_path, own_cache):
    np.savez(tmp_path / "cut.npz", **arrays())
    (tmp_path / "cut.npz").write_bytes((tmp_path / "cut.npz").read_bytes()[:400])
    with pytest.raises(DataError, match=r"cut\.npz: cannot be read"):
        Npz("cut.npz").load(tmp_path)
    with pytest.raises(DataError, match=r"looked for .*gone\.npz, not found; make it: numpy\.savez"):
        Npz("gone.npz").load(tmp_path)


def test_what_is_no_npz_file_is_refused_without_advice_to_load_it_unsafely(tmp_path, own_cache):
    (tmp_path / "text.npz").write_text("a,b\n1,2\n")
    with (tmp_path / "one.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    np.savez(tmp_path / "objects.npz", **arrays(y_test=np.array([{}, {}], dtype=object)))
    for name in ("text", "one", "objects"):
        with pytest.raises(DataError) as caught:
            Npz(f"{name}.npz").load(tmp_path)
        assert str(caught.value).startswith(
            f"{tmp_path / name}.npz: an array of Python objects, or no .npz file; expected"
        )
        assert "pickle" not in str(caught.value)


# ---------------------------------------------------------------- files


def test_a_listed_digest_that_does_not_fit_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("int_rate\n1\n")
    digest = hashlib.sha256(b"int_rate\n1\n").hexdigest()
    (tmp_path / "SHA256SUMS").write_text(f"{digest}  a.csv\n")
    assert files.sha256(tmp_path / "a.csv", tmp_path) == digest
    (tmp_path / "SHA256SUMS").write_text(f"{'0' * 64}  ./a.csv\n")
    with pytest.raises(DataError, match=r"a\.csv: SHA-256 .* SHA256SUMS beside it says 0000"):
        files.sha256(tmp_path / "a.csv", tmp_path)


def test_torchvision_is_not_imported_for_data_that_does_not_need_it():
    import subprocess
    import sys

    code = "import sys, dpflbench.tasks.datasets as d; d.Mnist().load(None); assert 'torchvision' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("path", ["1" * 5000, "~nobody-of-this-name/x.npz", "a\0b"])
def test_a_path_that_no_file_can_have_is_one_line(path):
    with pytest.raises(DataError, match=r"^npz: looked for .*, not found"):
        Npz(path).digest(None)
    assert not Npz(path).availability(None).found
