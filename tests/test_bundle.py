"""A bundle carries everything that proves results and nothing of the machine; whoever opens a stranger's is safe."""

import getpass
import hashlib
import io
import json
import lzma
import platform
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from honest import remade
from suite_runs import carry_out, planned_of
from test_replay import better
from typer.testing import CliRunner

from dpflbench.bundles import archive
from dpflbench.bundles.bundle import FORMAT, make, read
from dpflbench.bundles.machine import ABSOLUTE, LEFT_OUT
from dpflbench.bundles.prove import prove
from dpflbench.bundles.version import federations_apart, suite_version
from dpflbench.canonical import content_digest
from dpflbench.cli import app
from dpflbench.errors import DpflbenchError
from dpflbench.results.cells import Results
from dpflbench.results.proofs import LEVELS, proof_of
from dpflbench.results.record import dumps
from dpflbench.results.store import Store, manifest_text

HOST, USER = "distinctive-host-4711", "distinctive-user"


def run_in(home: Path, body: Mapping, name: str, catalogue, monkeypatch) -> Path:
    """A results folder of a suite that names its data relative to itself."""
    monkeypatch.chdir(home)
    body = {**body, "task": {**body["task"], "dataset": {"name": "npz", "path": "blobs.npz"}}}
    store = Store(home / name)
    carry_out(planned_of(body, home, catalogue), store, catalogue)
    return store.root


@pytest.fixture
def home(blobs, tmp_path, monkeypatch):
    """A folder that tells a lot about its owner, on a machine that does as well."""
    found = tmp_path / "distinctive-folder" / USER
    found.mkdir(parents=True)
    (found / "blobs.npz").write_bytes(blobs.read_bytes())
    monkeypatch.setattr(platform, "node", lambda: HOST)
    monkeypatch.setattr(getpass, "getuser", lambda: USER)
    monkeypatch.setattr(Path, "home", lambda: found)
    return found


@pytest.fixture
def folder(home, tiny, catalogue, monkeypatch):
    return run_in(home, tiny, "results", catalogue, monkeypatch)


@pytest.fixture
def packed(folder, tmp_path):
    path = tmp_path / "x.tar.xz"
    path.write_bytes(make(folder, "A. Author"))
    return path


def invoke(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def exchanged_record(path: Path, change) -> Path:
    """A bundle in which a careful forger has exchanged the first private record, and all digests with it."""
    files, old = archive.unpack(path), next(r for r in read(path).results.records.values() if r.private)
    new = remade(change(old))
    cells = [replace(c, run=new.id) if c.run == old.id else c for c in read(path).results.manifest.cells]
    files["suite.json"] = manifest_text(replace(read(path).results.manifest, cells=cells)).encode()
    del files[f"records/{old.id}.json"]
    return repacked(path, {**files, f"records/{new.id}.json": dumps(new).encode()})


def repacked(path: Path, files: Mapping[str, bytes], **about) -> Path:
    """The bundle with other files, whose digests are made anew."""
    head = {**json.loads(files["bundle.json"]), **about}
    head["files"] = {n: hashlib.sha256(c).hexdigest() for n, c in files.items() if n != "bundle.json"}
    out = path.with_name("forged.tar.xz")
    out.write_bytes(archive.pack({**files, "bundle.json": json.dumps(head).encode()}))
    return out


def test_the_same_results_give_the_same_bytes_wherever_they_lie(folder, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    folder.rename(elsewhere)
    first = make(elsewhere, "me")
    assert first == make(elsewhere, "me")
    assert first != make(elsewhere, "you")


def test_nothing_of_the_machine_is_in_it(folder, packed):
    """Not even when a run failed, whose traceback and reason name files."""
    store = Store(folder)
    record = next(iter(store.results().records.values()))
    bare = {"final": {}, "clients": {}, "events": {}, "rounds": {}, "facts": {}, "notes": []}
    reason = f"OSError: {folder}/work/x.npz is gone (simulate.py:7 in rounds)"
    measured = {**record.measured, "traceback": f'File "{folder}/plugin.py", line 3', "host": HOST}
    store.write(replace(record, status="failed", reason=reason, measured=measured, **bare))
    packed.write_bytes(make(folder, ""))
    spoken = b"".join(archive.unpack(packed).values()) + lzma.decompress(packed.read_bytes())
    for private in (HOST, USER, "distinctive-folder", str(folder), "traceback"):
        assert private.encode() not in spoken
    assert (
        read(packed).results.records[record.id].reason == f"OSError: {LEFT_OUT}x.npz is gone (simulate.py:7 in rounds)"
    )


@pytest.mark.parametrize(
    "text", ["/etc/x", "looked for /a/b.npz", "'/a b/c'", "~/x", "C:\\x\\y", "(/a/b)", "file:///a"]
)
def test_an_absolute_path_is_seen(text):
    assert ABSOLUTE.search(text)


@pytest.mark.parametrize(
    "text", ["data/x.npz", "../x", "initial / (1 + t)", "and/or", "2/3", "ε/δ", "https://a.b/c", "//"]
)
def test_what_is_no_absolute_path_is_left_alone(text):
    assert not ABSOLUTE.search(text)


def test_data_named_by_an_absolute_path_is_refused_because_ids_cover_it(tiny, catalogue, tmp_path):
    store = Store(tmp_path / "results")
    carry_out(planned_of(tiny, tmp_path, catalogue), store, catalogue)
    with pytest.raises(DpflbenchError, match=r"task\.dataset\.path: an absolute path"):
        make(store.root, "")


def test_a_source_that_names_the_machine_is_refused(folder):
    with pytest.raises(DpflbenchError, match="the name of this machine"):
        make(folder, f"run on {HOST}")


def test_results_that_are_not_complete_are_no_bundle(folder):
    next((folder / "records").glob("*.json")).unlink()
    with pytest.raises(DpflbenchError, match="1 runs are not there"):
        make(folder, "")


def test_a_tuned_table_whose_rows_differ_in_their_settings_is_refused(folder):
    store = Store(folder)
    manifest = store.manifest()
    store.write_manifest(replace(manifest, tuning=manifest.cells[:1]))
    with pytest.raises(DpflbenchError, match="a tuned table; allowed in a bundle"):
        make(folder, "")


def test_an_honest_bundle_is_replayed_and_the_command_says_what_that_proves(folder, packed, monkeypatch):
    monkeypatch.chdir(folder.parent)
    answer = invoke("bundle", "check", packed, "--replay", "2", "--seed", "1")
    assert answer.exit_code == 0, answer.output
    assert "Played again: 2 of 3 runs ended at the same bits, 2 were asked for (--seed 1)" in answer.output
    assert f"Proved: replayed. That is: {LEVELS['replayed']}" in answer.output
    assert "Not proved: how often the submitter tried" in answer.output
    assert "whoever has the bundle and messages of these runs can subtract the noise" in answer.output


def test_without_its_data_it_is_verified_and_not_replayed(packed, catalogue, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    answer = invoke("bundle", "check", packed, "-q")
    assert answer.exit_code == 3
    assert "Played again: 0 of 3 runs ended at the same bits, 3 were asked for" in answer.output
    assert "Proved: verified." in answer.output
    assert prove(read(packed), catalogue, 0, 0).level == "verified"


def test_a_forger_who_makes_every_digest_anew_is_found_by_a_replay(folder, packed, catalogue, monkeypatch):
    monkeypatch.chdir(folder.parent)
    forged = exchanged_record(packed, better)
    assert prove(read(forged), catalogue, 0, 0).level == "verified"  # all he says agrees with itself
    assert prove(read(forged), catalogue, None, 0, isolated=False).level == "refused"
    assert invoke("bundle", "check", forged, "--replay", "all", "-q").exit_code == 1


def test_a_record_that_contradicts_itself_needs_no_replay(packed, catalogue):
    forged = exchanged_record(
        packed, lambda r: replace(r, clients={**r.clients, "epsilon_spent": r.clients["epsilon_spent"] / 2})
    )
    found = prove(read(forged), catalogue, 0, 0)
    assert found.level == "refused"
    guilty = next(f.run for f in found.findings if f.problems)
    assert found.level_of({guilty}) == "refused"
    assert found.level_of({f.run for f in found.findings} - {guilty}) == "verified"


def test_levels_are_ordered_and_each_verdict_has_one():
    assert [proof_of(v, 0) for v in ("irreproducible", "wrong", "unverified", "ok")] == [
        "refused", "refused", "recorded", "verified",
    ]  # fmt: skip
    assert proof_of("ok", 1) == "replayed"
    assert list(LEVELS) == ["refused", "reported", "recorded", "verified", "replayed"]


# --- the version of a suite


def version_of(results: Results) -> str:
    return suite_version(results, "here")


def test_the_version_covers_what_makes_rows_comparable_and_nothing_else(home, tiny, catalogue, monkeypatch):
    def results(folder, changes):
        return Store(run_in(home, {**tiny, **changes}, folder, catalogue, monkeypatch)).results()

    first = results("a", {})
    same = {
        "b": {"algorithms": ["WeiAvg", "PFA"], "name": "other", "description": "words"},
        "c": {"federation": {**tiny["federation"], "weight_decay": 0.0}},  # a default written out
    }
    for name, changes in same.items():
        found = results(name, changes)
        assert version_of(found) == version_of(first), name
        assert federations_apart(first, found) == ""
    other = {
        "d": {"seeds": 2},
        "e": {"federation": {**tiny["federation"], "rounds": 5}},
        "f": {"privacy": {**tiny["privacy"], "delta": 1e-6}},
        "g": {"report": {"value": "utility_personal"}},
    }
    assert len({version_of(results(name, changes)) for name, changes in other.items()} | {version_of(first)}) == 5


def test_another_split_or_start_of_the_first_seed_is_another_version_and_of_a_later_one_is_named(packed):
    results = read(packed).results
    for fact in ("split_digest", "initial_model"):
        changed = {run: replace(r, facts={**r.facts, fact: content_digest(fact)}) for run, r in results.records.items()}
        other = replace(results, records=changed)
        assert version_of(other) != version_of(results)
        assert federations_apart(results, other) == fact


# --- strangers' archives


def xz(members, mode=tarfile.REGTYPE):
    """An archive of (name, content or TarInfo) pairs, as hostile as asked for."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.type = mode
            info.linkname = "/etc/passwd"
            info.size = len(content) if mode == tarfile.REGTYPE else 0
            tar.addfile(info, io.BytesIO(content))
    return lzma.compress(out.getvalue())


def bomb():
    """A gigabyte of nothing under an allowed name, in a few hundred kilobytes."""
    info = tarfile.TarInfo("suite.json")
    info.size = archive.MAX_MEMBER_BYTES
    block = info.tobuf(tarfile.USTAR_FORMAT) + b"\0" * info.size
    packer, out = lzma.LZMACompressor(preset=0), []
    for i in range(16):
        name = f"records/{i}.json".encode().ljust(20, b"\0")
        header = bytearray(block[:512])
        header[:20], header[148:156] = name, b" " * 8
        header[148:156] = f"{sum(header):06o}\0 ".encode()
        out += [packer.compress(bytes(header)), packer.compress(block[512:])]
    return b"".join(out) + packer.flush()


def huge_member():
    info = tarfile.TarInfo("suite.json")
    info.size = 1 << 40
    return lzma.compress(info.tobuf(tarfile.GNU_FORMAT))


HOSTILE = {
    "path traversal": (xz([("../../../etc/x", b"")]), "a file '../../../etc/x'"),
    "an absolute name": (xz([("/etc/x", b"")]), "a file '/etc/x'"),
    "traversal below records": (xz([("records/../../x.json", b"")]), "a file 'records/"),
    "a symbolic link": (xz([("suite.json", b"")], tarfile.SYMTYPE), "is no plain file"),
    "a hard link": (xz([("suite.json", b"")], tarfile.LNKTYPE), "is no plain file"),
    "a folder": (xz([("records", b"")], tarfile.DIRTYPE), "is no plain file"),
    "a device": (xz([("suite.json", b"")], tarfile.CHRTYPE), "is no plain file"),
    "a name twice": (xz([("suite.json", b"{}"), ("suite.json", b"{}")]), "suite.json is in it twice"),
    "a name that is not UTF-8": (xz([("records/\udcff.json", b"")]), "a file "),
    "a name with control signs": (xz([("records/\x1b[2J.json", b"")]), "a file "),
    "too many": (xz([(f"records/{i}.json", b"") for i in range(30)]), "more than 20 files"),
    "a member that says it is huge": (huge_member(), "has 1,099,511,627,776 bytes"),
    "a bomb": (bomb(), "bytes unpacked"),
    "no archive": (b"PK\x03\x04 not at all", "not a bundle, or damaged"),
    "nothing": (b"", "not a bundle, or damaged"),
    "half an archive": (xz([("suite.json", b"x" * 5000)])[:80], "not a bundle, or damaged"),
    "no tar inside": (lzma.compress(b"hello" * 300), "not a bundle"),
    "an archive of nothing": (xz([]), "not a bundle"),
    "no manifest": (xz([("bundle.json", b"{}")]), "not a bundle"),
    "nests": (xz([("bundle.json", b"[" * 100_000)]), "not a bundle"),
    "bytes that are not UTF-8": (xz([("bundle.json", b'{"a": "\xff"}')]), "not a bundle"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_archive_is_refused_in_one_line(case, tmp_path, monkeypatch):
    if case == "too many":
        monkeypatch.setattr(archive, "MAX_MEMBERS", 20)
    content, words = HOSTILE[case]
    path = tmp_path / "x.tar.xz"
    path.write_bytes(content)
    with pytest.raises(DpflbenchError) as caught:
        read(path)
    text = str(caught.value)
    assert words in text
    assert text.isprintable()  # one line, nothing that moves a cursor
    assert text.startswith(str(path))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.tar.xz"]


def test_a_decompressor_may_not_ask_for_all_memory(tmp_path):
    path = tmp_path / "x.tar.xz"
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": archive.MAX_DICTIONARY * 4}]
    path.write_bytes(lzma.compress(b"x", filters=filters))
    with pytest.raises(DpflbenchError, match="not a bundle, or damaged"):
        read(path)


def test_what_was_changed_on_the_way_is_named(packed):
    files = archive.unpack(packed)
    name = next(n for n in files if n.startswith("records/"))
    packed.write_bytes(archive.pack({**files, name: files[name] + b" "}))
    with pytest.raises(DpflbenchError, match=f"{name} is not the file that bundle.json lists"):
        read(packed)


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"format": 2}, f"format 2 of bundles; this version reads {FORMAT}"),
        ({"suite_version": "0" * 64}, "suite_version is '000"),
        ({"date": "1999-01-01"}, "date is '1999"),
        ({"source": "two\nlines"}, "its source is no short text"),
        ({"source": 7}, "its source is no short text"),
    ],
)
def test_what_a_bundle_says_of_itself_is_compared_with_its_records(packed, about, words):
    with pytest.raises(DpflbenchError, match=words):
        read(repacked(packed, archive.unpack(packed), **about))


def test_records_are_those_of_the_manifest(packed):
    files = archive.unpack(packed)
    with pytest.raises(DpflbenchError, match=r"records/extra\.json: the records are not those"):
        read(repacked(packed, {**files, "records/extra.json": b"{}"}))


def test_a_bundle_that_names_a_file_of_the_reader_is_refused(packed):
    """What a replay would open is named by the submitter."""
    results = read(packed).results
    suite = {**results.manifest.suite}
    suite["task"] = {**suite["task"], "dataset": {"name": "npz", "path": "/etc/shadow"}}
    files = {**archive.unpack(packed), "suite.json": manifest_text(replace(results.manifest, suite=suite)).encode()}
    with pytest.raises(DpflbenchError, match="an absolute path, '/etc/shadow'"):
        read(repacked(packed, files))


def test_arrays_of_all_records_together_have_a_limit(packed, monkeypatch):
    first = next(iter(read(packed).results.records.values()))
    size = sum(a.nbytes for part in (first.rounds, first.clients, first.events) for a in part.values())
    noted = sum(a.nbytes for note in first.notes for a in note.values() if hasattr(a, "nbytes"))
    monkeypatch.setattr("dpflbench.bundles.bundle.MAX_RECORD_BYTES", size + noted)
    with pytest.raises(DpflbenchError, match="runs is 3, its records say otherwise"):
        read(packed)  # the first is read, the others are more than there is room for
