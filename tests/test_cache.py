"""The cache is written whole, checked when read, rebuilt when damaged, and never a reason to fail."""

import logging
import os

import pytest
import torch

from dpflbench.tasks import cache


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DPFLBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Counted:
    """A builder that counts how often it was asked."""

    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return {"x": torch.arange(12, dtype=torch.float32).reshape(3, 4), "y": torch.tensor([1, 2, 3])}


def test_the_second_load_does_not_build_again(own_folder):
    build = Counted()
    first = cache.cached("digits", {"digest": "a"}, build)
    second = cache.cached("digits", {"digest": "a"}, build)
    assert build.calls == 1
    assert torch.equal(first["x"], second["x"])
    assert second["y"].dtype == torch.int64
    assert len(list(own_folder.glob("digits-*.pt"))) == 1


def test_another_digest_or_preprocessing_is_another_file(own_folder):
    build = Counted()
    cache.cached("digits", {"digest": "a"}, build)
    cache.cached("digits", {"digest": "b"}, build)
    cache.cached("digits", {"digest": "a", "features": "pca"}, build)
    assert build.calls == 3
    assert len(list(own_folder.glob("*.pt"))) == 3


def test_a_loader_that_was_changed_does_not_find_what_it_made_before(own_folder, monkeypatch):
    build = Counted()
    cache.cached("digits", {}, build)
    monkeypatch.setattr(cache, "source", lambda thing: "edited")
    cache.cached("digits", {}, build)
    assert build.calls == 2


def test_the_source_of_a_function_and_of_an_object_is_their_files():
    import hashlib
    from pathlib import Path

    mine = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    assert cache.source(Counted()) == cache.source(own_folder_path) == mine
    assert cache.source(print) == "builtins"


def own_folder_path():
    pass


@pytest.mark.parametrize("damage", ["truncated", "flipped", "emptied", "replaced"])
def test_a_damaged_file_is_rebuilt(own_folder, damage, caplog):
    build = Counted()
    expected = cache.cached("digits", {}, build)["x"].clone()
    (path,) = own_folder.glob("*.pt")
    content = bytearray(path.read_bytes())
    if damage == "truncated":
        content = content[: len(content) // 2]
    elif damage == "flipped":
        at = bytes(content).index(torch.tensor([5.0]).numpy().tobytes())
        content[at] ^= 1
    elif damage == "emptied":
        content = bytearray()
    else:
        torch.save([1, 2, 3], path)
        content = bytearray(path.read_bytes())
    os.unlink(path)  # not in place: the first load still has the old file mapped
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        again = cache.cached("digits", {}, build)
    assert build.calls == 2
    assert torch.equal(again["x"], expected)
    assert "damaged" in caplog.text
    cache.cached("digits", {}, build)
    assert build.calls == 2  # and the repaired file is good


def test_a_file_with_code_in_it_is_not_run(own_folder):
    class Evil:
        def __reduce__(self):
            return (os.system, ("touch pwned",))

    build = Counted()
    cache.cached("digits", {}, build)
    (path,) = own_folder.glob("*.pt")
    path.unlink()
    torch.save({"sha256": "", "tensors": Evil()}, path)
    cache.cached("digits", {}, build)
    assert build.calls == 2
    assert not os.path.exists("pwned")


def test_an_unwritable_cache_is_only_a_slower_load(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("DPFLBENCH_CACHE", str(tmp_path / "file" / "below"))
    build = Counted()
    with caplog.at_level(logging.WARNING):
        cache.cached("digits", {}, build)
        cache.cached("digits", {}, build)
    assert build.calls == 2
    assert "not kept" in caplog.text
    with cache.scratch() as folder:
        (folder / "note").write_text("still works")


def test_nothing_is_left_behind_when_writing_fails(own_folder, monkeypatch):
    def full(*args, **kwargs):
        raise RuntimeError("No space left on device")

    monkeypatch.setattr(torch, "save", full)
    cache.cached("digits", {}, Counted())
    assert list(own_folder.iterdir()) == []


def test_without_the_variable_the_cache_is_in_the_users_cache_folder(monkeypatch):
    monkeypatch.delenv("DPFLBENCH_CACHE")
    assert cache.cache_folder().name == "dpflbench"


def test_a_scratch_folder_vanishes():
    with cache.scratch() as folder:
        (folder / "a").write_text("b")
        assert folder.is_dir()
    assert not folder.exists()
