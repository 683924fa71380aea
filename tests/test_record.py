"""The record of a run: what goes in comes out, and nothing else is let in."""

import json
import re

import numpy as np
import pytest

from dpflbench.canonical import content_digest, encode
from dpflbench.results.record import ACCURACY, Record, RecordError, dumps, loads


def example(**changes) -> Record:
    values = {
        "id": "abc",
        "status": "done",
        "reason": "",
        "config": {"seed": 1, "lr": {"decay": float("inf")}},
        "algorithm": "X",
        "private": True,
        "metric": ACCURACY,
        "rounds": {"round": np.arange(3)},
        "final": {"utility_global": 85.25},
        "clients": {"epsilon": np.array([0.5, np.inf])},
        "events": {"kind": np.zeros(4, dtype=np.int8)},
        "notes": [{"round": 0, "uses": np.array([1, 2])}],
        "measured": {"seconds": 1.5},
    } | changes
    return Record(**values)


def test_a_record_survives_the_way_to_disk_and_back():
    record = loads(dumps(example()))
    assert record.digest == example().digest
    assert record.config["lr"]["decay"] == float("inf")
    np.testing.assert_array_equal(record.clients["epsilon"], [0.5, np.inf])
    assert record.events["kind"].dtype == np.int8
    np.testing.assert_array_equal(record.notes[0]["uses"], [1, 2])


def test_the_digest_covers_everything_but_what_was_measured():
    assert example(measured={"seconds": 99.0}).digest == example().digest
    for change in (
        {"final": {"utility_global": 85.26}},
        {"clients": {"epsilon": np.array([0.5, 3.0])}},
        {"status": "failed"},
        {"config": {"seed": 2}},
        {"notes": []},
    ):
        assert example(**change).digest != example().digest


def test_what_was_measured_has_a_digest_of_its_own_and_belongs_to_its_run():
    assert example(measured={"seconds": 99.0}).measured_digest != example().measured_digest
    assert example(id="abd").measured_digest != example().measured_digest
    assert example(algorithm="Y").measured_digest == example().measured_digest


def test_the_order_of_keys_does_not_matter():
    assert content_digest({"a": 1, "b": [1.5, None]}) == content_digest({"b": [1.5, None], "a": 1})


def edited(**changes) -> str:
    return json.dumps(json.loads(dumps(example())) | changes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (dumps(example())[:200], "truncated or not JSON"),
        ("[]", "not a dpflbench record"),
        (edited(schema=99), "schema 99, this version reads 2"),
        (edited(status="fine"), "status 'fine'; allowed: done"),
        (edited(schema=1), "made by dpflbench 0.1 (schema 1); this version reads 2: run the suite again"),
        (edited(algorithm="Y"), "content does not match its digest"),
        (edited(measured={"seconds": 0.5}), "what was measured does not match its digest"),
        (edited(clients={"epsilon": {"array": "<f8", "shape": [1000000000], "zlib": "eJw="}}), "damaged"),
        (edited(clients={"epsilon": {"array": "|O", "shape": [1], "zlib": "eJw="}}), "array type '|O'"),
        (edited(clients={"epsilon": {"array": "<f8", "shape": [2], "zlib": "!!"}}), "damaged"),
        (edited(metric="accuracy"), "damaged"),
    ],
)
def test_a_record_that_is_not_whole_is_refused_by_name(text, message):
    with pytest.raises(RecordError, match=re.escape(message)) as caught:
        loads(text, "r.json")
    assert str(caught.value).startswith("r.json: ")


def test_an_array_packed_larger_than_it_says_is_not_unpacked():
    bomb = encode(np.zeros(10**7, dtype=np.int8)) | {"shape": [8]}
    with pytest.raises(RecordError, match="its shape says 8"):
        loads(edited(clients={"epsilon": bomb}))


def test_what_is_no_data_cannot_be_recorded():
    with pytest.raises(TypeError, match="object cannot be kept in a record"):
        encode({"x": object()})
