"""Suites, records and baselines are data from strangers: never code, never unbounded, never able to move a cursor or
leave a folder.
"""

import ast
import base64
import copy
import json
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from record_factory import make_results

from dpflbench import suite_reading as suites
from dpflbench.canonical import content_digest, decode, encode
from dpflbench.cli import main
from dpflbench.cli.output import printable
from dpflbench.errors import DpflbenchError
from dpflbench.planning import plan_suite
from dpflbench.regression import load_baseline
from dpflbench.results.record import RecordError, dumps, loads
from dpflbench.results.store import Store
from dpflbench.schema import INVALID, build
from dpflbench.suite_file import MAX_BYTES, parse_value
from dpflbench.tasks.partition import PARTITIONS
from dpflbench.tasks.population import Uniform

REPO = Path(__file__).parent.parent
FUZZ = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)

# ---------------------------------------------------------------- what a fuzzer may write

WORDS = [
    "gaussian",
    "laplace",
    "mnist",
    "iid",
    "mixture",
    "listed",
    "compose",
    "uniform",
    "npz",
    "softmax",
    "pfa",
    "DPSGD",
    "nan",
    "inf",
    "1e5",
    "../x",
    "/etc/passwd",
    "${oc.env:HOME}",
    "\x1b[2J",
    "\ud800".encode("utf-8", "replace").decode(),
    "a\x00b",
]
KEYS = [
    "name",
    "kind",
    "value",
    "values",
    "weights",
    "low",
    "high",
    "use",
    "with",
    "as",
    "float",
    "array",
    "shape",
    "zlib",
]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-3, 12),
    st.sampled_from([2**63 - 1, 2**63, -(2**63), 10**400, 199_999_999_999]),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(WORDS),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.one_of(st.text(max_size=5), st.sampled_from(KEYS)), inner, max_size=3)
    ),
    max_leaves=6,
)
ODD = st.one_of(
    VALUES, st.dates(), st.binary(max_size=4), st.dictionaries(st.integers(-2, 3), st.booleans(), max_size=2)
)
MISSING = object()


def paths(value, above=()):
    if above:
        yield above
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from paths(child, (*above, key))


def mutated(body, changes):
    """A deep copy with values replaced or removed at some paths, where they still exist."""
    body = copy.deepcopy(body)
    for path, value in changes:
        spot = body
        try:
            for key in path[:-1]:
                spot = spot[key]
            if value is MISSING:
                del spot[path[-1]]
            else:
                spot[path[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue
    return body


def changes(body, values):
    return st.lists(
        st.tuples(st.sampled_from(list(paths(body))), st.one_of(values, st.just(MISSING))), min_size=1, max_size=3
    )


# ---------------------------------------------------------------- suites

SUITE = {
    "name": "fuzz",
    "description": "d",
    "task": {
        "dataset": {"name": "mnist", "features": {"kind": "standardise"}},
        "model": {"name": "softmax"},
        "partition": {"kind": "dirichlet", "alpha": 3.0},
        "holdout": 0.2,
        "split": "official",
        "limit": None,
    },
    "federation": {
        "clients": 8,
        "cohort": 4,
        "rounds": 6,
        "lr": {"initial": 0.5, "decay": 20},
        "momentum": 0.1,
        "weight_decay": 0.0,
        "local": {"kind": "full_step"},
    },
    "privacy": {
        "mechanism": {"name": "gaussian", "accountant": {"name": "gdp", "composition": "exact"}},
        "clip": {"gaussian": 1.0, "laplace": 2.0},
        "epsilon": {"kind": "uniform", "low": 0.5, "high": 4.0},
        "delta": {"kind": "constant", "value": 1e-5},
    },
    "axes": {"privacy.mechanism": ["gaussian", "laplace"], "privacy.epsilon.high": [5, 6.0]},
    "evaluate": {"every": 2},
    "resources": {"cpu": 1, "gpu": 0},
    "seeds": 2,
    "report": {"columns": ["privacy.mechanism"], "baseline": ["DPSGD"], "value": "utility"},
    "algorithms": [
        "FedSGD",
        {"use": "DPFL-BCS", "as": "x", "with": {"probe_rounds": 3}},
        {"use": "compose", "with": {"selector": {"name": "bcs"}, "aggregator": "pfa"}},
        {"use": "PFA", "with": {"rank": 1}},
    ],
}


def outcome(call, *args):
    """What a call returns and the text of its refusal; anything else than DpflbenchError is a failure of the test."""
    try:
        return call(*args), ""
    except DpflbenchError as e:
        return None, str(e)


def planned(path, catalogue, overrides=()):
    """The number of a suite's cells, or the refusal."""
    manifest, refusal = outcome(lambda: plan_suite(suites.load(path, overrides), catalogue, None).manifest)
    assert all(len(line) < 2000 for line in refusal.splitlines())
    return refusal if manifest is None else len(manifest.cells)


def test_the_suite_that_is_fuzzed_is_a_good_one(tmp_path, catalogue):
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(SUITE))
    assert planned(tmp_path / "s.yaml", catalogue) == 2 * 2 * 4 * 2


@FUZZ
@given(what=changes(SUITE, ODD))
def test_a_suite_changed_anywhere_is_planned_or_refused(what, tmp_path, catalogue):
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(mutated(SUITE, what), allow_unicode=True))
    planned(tmp_path / "s.yaml", catalogue)


PIECES = [
    "name: x\n",
    "a: &a [1]\n",
    "*a",
    "!!set {}",
    "{",
    "}",
    "[",
    "]",
    ": ",
    "- ",
    "\n",
    "  ",
    "? ",
    "&x ",
    "|",
    "> ",
    "'",
    '"',
    "\t",
    "!!python/name:os.system ",
    "---\n",
    "...\n",
    "%YAML 1.1\n",
    "<<: *a\n",
    "task:\n",
    "extends: x\n",
    "extends: s.yaml\n",
    "!!float nan",
    "1:30",
    "!!binary aGk=",
    "2020-01-01",
    "=",
    "<<",
    "\x00",
    "\ufeff",
]
TARGETS = [
    "task.dataset.name",
    "algorithms[0]",
    "algorithms.1.with.x",
    "axes.privacy.clip",
    "seeds",
    "privacy.epsilon",
    "name",
    "extends",
    "report.columns",
    "..",
    "[]",
    "axes.",
]
SETTINGS = [
    "[1,2]",
    "{a: 1}",
    "*x",
    "&a [*a]",
    "!!binary aGk=",
    "2020-01-01",
    "1e400",
    "${x}",
    "null",
    "{[1]: 2}",
    "? a",
    "99999999999",
]


@FUZZ
@given(
    content=st.one_of(
        st.binary(max_size=200), st.lists(st.sampled_from(PIECES)).map(lambda parts: "".join(parts).encode())
    )
)
def test_any_bytes_are_a_suite_or_refused(content, tmp_path, catalogue):
    (tmp_path / "s.yaml").write_bytes(content)
    planned(tmp_path / "s.yaml", catalogue)


@FUZZ
@given(
    given_=st.lists(
        st.one_of(
            st.text(max_size=20),
            st.tuples(
                st.one_of(st.text(max_size=12), st.sampled_from(TARGETS)),
                st.one_of(st.text(max_size=15), st.sampled_from(SETTINGS)),
            ).map("=".join),
        ),
        max_size=3,
    )
)
def test_any_override_is_applied_or_refused(given_, tmp_path, catalogue):
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(SUITE))
    planned(tmp_path / "s.yaml", catalogue, given_)


def refused(tmp_path, catalogue, text):
    (tmp_path / "s.yaml").write_text(text)
    answer = planned(tmp_path / "s.yaml", catalogue)
    assert isinstance(answer, str)
    return answer


@pytest.mark.parametrize(
    "tag",
    [
        "!!python/object/apply:os.system ['touch owned']",
        "!!python/name:os.system",
        "!!python/module:os",
        "!!python/object:builtins.object {}",
        "!!python/tuple [1]",
        "!custom x",
    ],
)
def test_no_tag_constructs_anything(tag, tmp_path, catalogue, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "not a YAML suite" in refused(tmp_path, catalogue, f"name: {tag}\n")
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("text", ["${oc.env:HOME}", "${oc.decode:1}", "${name}", "x${oc.env:PATH}"])
def test_nothing_is_interpolated_from_the_environment(text, tmp_path, catalogue):
    body = {**SUITE, "description": text, "algorithms": [{"use": "PFA", "as": text}]}
    answer = refused(tmp_path, catalogue, yaml.safe_dump(body))
    assert answer.count("interpolation '${...}' is not available") == 2


def test_a_nest_of_aliases_is_refused_before_it_unfolds(tmp_path, catalogue):
    lines = ["l0: &l0 [x, x, x, x, x, x, x, x, x, x]"] + [
        f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 10)}]" for i in range(1, 12)
    ]
    assert "values once aliases are written out" in refused(tmp_path, catalogue, "\n".join(lines))
    assert "an alias that contains itself" in refused(tmp_path, catalogue, "a: &a [*a]")
    assert parse_value("&a [*a]") == "&a [*a]"


@pytest.mark.parametrize(
    ("path", "value", "bits"),
    [
        ("federation.rounds", str(10**400), 1329),
        ("federation.lr.initial", str(10**400), 1329),
        ("privacy.clip.gaussian", str(-(10**400)), 1329),
        ("seeds", f"[{2**63}]", 64),
        ("axes.privacy.epsilon.low", f"[{2**63}, 0.5]", 64),
        ("algorithms[1].with.probe_rounds", str(2**63), 64),
        ("name", "0x" + "f" * 5000, 20_000),  # more digits than Python writes out
        ("extends", "0x" + "f" * 5000, 20_000),
    ],
)
def test_an_integer_that_no_array_holds_is_refused_by_one_line(tmp_path, catalogue, path, value, bits):
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(SUITE))
    answer = planned(tmp_path / "s.yaml", catalogue, [f"{path}={value}"])
    if path == "extends":
        answer = refused(tmp_path, catalogue, f"extends: {value}\n")
    assert f"an integer of {bits} bits" in answer
    assert path.split(".")[-1].split("[")[0] in answer
    assert len(answer.splitlines()) == 1


def test_a_part_made_without_a_suite_refuses_such_integers_too():
    problems = []
    assert build(Uniform, {"low": 1, "high": 10**400}, "--with", problems) is INVALID
    assert problems == ["--with.high: found an integer of 1329 bits; allowed: 63, so up to 9,223,372,036,854,775,807"]


@pytest.mark.parametrize(
    ("section", "answer"),
    [
        (
            {"rounds": 199_999_999_999},
            "federation.rounds: 199,999,999,999 of 4 clients each take 241 days at the very least; "
            "allowed: up to 30 days",
        ),
        (
            {"rounds": 2**62},
            "federation.rounds: 4,611,686,018,427,387,904 of 4 clients each take 5,551,103,541 days at the very least; "
            "allowed: up to 30 days",
        ),
        (
            {"clients": 10**12},
            "federation.clients: 1,000,000,000,000 take 64,000 GB for their sizes and budgets alone; "
            "allowed: up to 1,000 GB",
        ),
        (
            {"clients": 10**9, "cohort": 10**9, "rounds": 10_000},
            "federation.rounds: 10,000 of 1,000,000,000 clients each take 116 days at the very least; "
            "allowed: up to 30 days",
        ),
    ],
)
def test_what_no_machine_can_do_is_refused_with_the_estimate(tmp_path, catalogue, section, answer):
    body = {**SUITE, "federation": {**SUITE["federation"], **section}}
    assert refused(tmp_path, catalogue, yaml.safe_dump(body)) == f"{tmp_path / 's.yaml'}: {answer}"


@pytest.mark.parametrize("kind", ["iid", "dirichlet", "shards", "power_law"])
def test_clients_beyond_number_are_refused_before_anything_is_dealt_out(kind):
    with pytest.raises(DpflbenchError, match=rf"{kind}.min_size: 10000000000 clients of at least 1 need"):
        PARTITIONS[kind](min_size=0).assign(np.arange(60) % 3, None, 10**10, np.random.default_rng(0))


@pytest.mark.parametrize("index", ["²", "9" * 5000])
def test_an_index_that_is_no_number_is_refused(tmp_path, catalogue, index):
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(SUITE))
    assert "is no index of a list of 4" in planned(tmp_path / "s.yaml", catalogue, [f"algorithms[{index}]=X"])


def test_a_deep_nest_a_huge_file_and_a_device_are_refused(tmp_path, catalogue):
    assert "not a YAML suite" in refused(tmp_path, catalogue, "a: " + "[" * 5000 + "]" * 5000)
    assert "larger than 1024 KB" in refused(tmp_path, catalogue, "#" * (MAX_BYTES + 1))
    assert "not a regular file" in refused(tmp_path, catalogue, "name: x\nextends: /dev/zero\n")
    assert "not a regular file" in refused(tmp_path, catalogue, "name: x\nextends: .\n")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("seeds", 10**12, "seeds: more than 10,000"),
        ("seeds", list(range(10_001)), "values once aliases are written out; allowed: 9,000"),
        ("axes", {f"privacy.x{i}": list(range(100)) for i in range(6)}, "cells; allowed: 1,000,000"),
    ],
)
def test_a_suite_of_a_billion_runs_is_refused(key, value, message, tmp_path, catalogue):
    assert message in refused(tmp_path, catalogue, yaml.safe_dump({**SUITE, key: value, "report": {}}))


@pytest.mark.parametrize(
    "name", ["../../etc/cron.d/x", "a/b", "a\\b", "..", ".hidden", "", "x" * 101, "a\x00b", "a\nb", "\x1b[2J", 7]
)
def test_a_name_that_leads_out_of_the_folder_is_refused(name, tmp_path, catalogue):
    answer = refused(tmp_path, catalogue, yaml.safe_dump({**SUITE, "name": name}))
    assert "name: found" in answer
    assert "it names a folder" in answer


def test_a_suite_reads_no_file_but_what_it_extends(tmp_path, catalogue):
    (tmp_path / "secret.txt").write_text("password: hunter2")
    answer = refused(tmp_path, catalogue, "name: !include secret.txt\n")
    assert "hunter2" not in answer


# ---------------------------------------------------------------- records and manifests


def whole_record():
    record = next(iter(make_results(seeds=1).records.values()))
    return json.loads(dumps(record))


RECORD = whole_record()


def signed(body):
    """The record with a digest that fits its content: what somebody who makes records up would send."""
    try:
        outside = ("schema", "digest", "measured", "measured_digest")
        content = decode({k: v for k, v in body.items() if k not in outside})
        measured = content_digest([content["id"], decode(body["measured"])])
        return {**body, "digest": content_digest(content), "measured_digest": measured}
    except (ValueError, TypeError, AttributeError, KeyError, zlib.error, OverflowError):
        return body


def read(text):
    """A record whose parts are what readers rely on, or the refusal."""
    record, refusal = outcome(loads, text)
    if record is None:
        assert len(refusal.splitlines()) == 1
        assert len(refusal) < 1000
        return None
    assert all(
        isinstance(a, np.ndarray) for part in (record.rounds, record.clients, record.events) for a in part.values()
    )
    assert all(isinstance(v, float | int) for v in record.final.values())
    assert loads(dumps(record)).digest == record.digest
    return record


def test_the_record_that_is_fuzzed_is_a_good_one():
    assert read(json.dumps(signed(RECORD))) is not None


@FUZZ
@given(what=changes(RECORD, VALUES), sign=st.booleans())
def test_a_record_changed_anywhere_is_read_or_refused(what, sign):
    body = mutated(RECORD, what)
    read(json.dumps(signed(body) if sign else body))


@FUZZ
@given(
    text=st.one_of(
        st.text(max_size=100),
        st.lists(
            st.sampled_from(
                ["{", "}", "[", "]", '"schema"', ":", "1", ",", "NaN", "-", "1e999", '"\\ud800"', '"status"', '"done"']
            )
        ).map("".join),
    )
)
def test_any_text_is_a_record_or_refused(text):
    assert read(text) is None


@FUZZ
@given(
    dtype=st.one_of(st.sampled_from(["<f8", "|b1", "<i4", "|O", "<U9", ">f8", "<c16", "<m8[s]"]), VALUES),
    shape=st.one_of(st.lists(st.integers(-2, 5), max_size=4), st.lists(st.integers(), max_size=3), VALUES),
    packed=st.one_of(st.binary(max_size=64).map(lambda raw: base64.b64encode(zlib.compress(raw)).decode()), VALUES),
)
def test_any_array_is_decoded_to_what_it_says_or_refused(dtype, shape, packed):
    body = {**RECORD, "events": {"scale": {"array": dtype, "shape": shape, "zlib": packed}}}
    read(json.dumps(signed(body)))


def test_arrays_that_unpack_to_gigabytes_are_refused_by_what_they_say():
    zeros = base64.b64encode(zlib.compress(bytes(1 << 24), 9)).decode()  # 16 MB in 16 KB

    def array(n):
        return {"array": "|u1", "shape": [n], "zlib": zeros}

    with pytest.raises(RecordError, match="arrays larger than a record may hold"):
        loads(json.dumps({**RECORD, "events": {"a": array(1 << 40)}}))
    with pytest.raises(RecordError, match="its shape says 10"):
        loads(json.dumps({**RECORD, "events": {"a": array(10)}}))
    room = [40 << 20]
    assert len(decode([array(1 << 24), array(1 << 24)], room)) == 2
    with pytest.raises(ValueError, match="arrays larger than a record may hold"):
        decode(array(1 << 24), room)  # the third of 16 MB


@pytest.mark.parametrize(
    "array", [np.array(["text"]), np.array([object()]), np.array([1j]), np.array(["2020-01-01"], dtype="M8[D]")]
)
def test_what_could_not_be_read_back_is_not_written(array):
    with pytest.raises(TypeError, match="cannot be kept in a record"):
        encode(array)


def sealed(manifest):
    """The manifest with a digest that fits its content."""
    content = {name: manifest.get(name) for name in ("name", "suite", "cells")}
    return {**manifest, "digest": content_digest(content)}


MANIFEST = {
    "schema": 2,
    "name": "x",
    "suite": {"axes": {}},
    "cells": [
        {"coordinates": {"privacy.mechanism": "gaussian"}, "algorithm": "DPSGD", "seed": 0, "run": "abc", "reason": ""},
        {"coordinates": {}, "algorithm": "DMLDP", "seed": 0, "run": None, "reason": "impossible"},
    ],
}


@FUZZ
@given(what=changes(MANIFEST, VALUES), seal=st.booleans())
def test_a_manifest_changed_anywhere_is_read_or_refused(what, seal, tmp_path):
    body = mutated(sealed(MANIFEST), what)
    (tmp_path / "suite.json").write_text(json.dumps(sealed(body) if seal and isinstance(body, dict) else body))
    results, refusal = outcome(Store(tmp_path).results)
    assert len(refusal.splitlines()) == (results is None)
    assert results is None or all(isinstance(c.algorithm, str) and type(c.seed) is int for c in results.manifest.cells)


@pytest.mark.parametrize("run", ["../secret", "/etc/passwd", "..", "a/b", "a\x00", "", "x" * 101, "a.b"])
def test_a_run_id_that_leads_out_of_the_folder_is_refused(run, tmp_path):
    results = tmp_path / "results"
    results.mkdir()
    (tmp_path / "secret.json").write_text(json.dumps(RECORD))
    body = mutated(MANIFEST, [(("cells", 0, "run"), run)])
    (results / "suite.json").write_text(json.dumps(sealed(body)))
    with pytest.raises(DpflbenchError, match="is no id of a run"):
        Store(results).results()
    with pytest.raises(DpflbenchError, match="is no id of a run"):
        Store(results).read(run)


BASELINE = {
    "schema": 1,
    "name": "x",
    "value": "utility_global",
    "places": [
        {
            "algorithm": "DPSGD",
            "coordinates": {},
            "metric": ["accuracy", "%", True],
            "runs": [
                [0, "done", 80.0, "a", "b", "c", 100.0, "d", "2.13", "cpu"],
                [1, "diverged", None, "a", "b", "c", None, "d", "2.13", "cpu"],
            ],
        }
    ],
}


@FUZZ
@given(what=changes(BASELINE, VALUES))
def test_a_baseline_changed_anywhere_is_read_or_refused(what, tmp_path):
    path = tmp_path / "baseline.json"
    path.write_text(json.dumps(BASELINE))
    assert len(load_baseline(path).places) == 1
    path.write_text(json.dumps(mutated(BASELINE, what)))
    baseline, refusal = outcome(load_baseline, path)
    assert baseline is not None or "not a baseline" in refusal


# ---------------------------------------------------------------- data, output, sources


def test_a_data_file_with_objects_is_refused_and_not_unpickled(tmp_path, catalogue):
    class Bomb:
        def __reduce__(self):
            return Path.touch, (tmp_path / "owned",)

    data = {
        "x_train": np.array([Bomb()], dtype=object),
        "y_train": np.zeros(1),
        "x_test": np.zeros((1, 1)),
        "y_test": np.zeros(1),
    }
    np.savez(tmp_path / "bomb.npz", **data)
    dataset = catalogue.parts["datasets"]["npz"].factory(str(tmp_path / "bomb.npz"))
    with pytest.raises(DpflbenchError):
        dataset.load(None)
    assert not (tmp_path / "owned").exists()


@given(st.text())
@settings(max_examples=300, deadline=None, derandomize=True)
def test_printable_text_moves_no_cursor(text):
    shown = printable(text)
    assert shown.isprintable()
    assert text.isprintable() == (shown == text)
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u2028\u2029\u202e\u200b" for c in shown)


def command(monkeypatch, capsys, *args):
    monkeypatch.setattr(sys, "argv", ["dpflbench", *map(str, args)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code, capsys.readouterr()


def quiet(text):
    return not any((ord(c) < 32 and c != "\n") or ord(c) in (127, 0x9B, 0x202E) for c in text)


EVIL = "\x1b[2J\x1b]0;owned\x07\u202egnp.exe\x9b31m"


def test_a_suite_that_is_refused_is_quoted_without_its_control_characters(monkeypatch, capsys, tmp_path):
    body = {**SUITE, "name": EVIL, EVIL: 1, "algorithms": [{"use": EVIL, "with": {EVIL: EVIL}}], "axes": {EVIL: [1]}}
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(body))
    for name in ("run", "plan"):
        code, printed = command(monkeypatch, capsys, name, tmp_path / "s.yaml")
        assert code == 2
        assert quiet(printed.out)
        assert quiet(printed.err)
        assert "\\x1b[2J" in printed.err


def test_labels_with_control_characters_are_shown_escaped(monkeypatch, capsys, tmp_path, tiny):
    tiny["algorithms"] = [
        {"use": "DPSGD", "as": f"DPSGD{EVIL}"},
        {"use": "WeiAvg", "as": "<script>alert(1)</script>|*x*"},
    ]
    tiny["description"] = EVIL
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(tiny))
    results = tmp_path / "results"
    monkeypatch.setattr(
        "dpflbench.api.folders.write_report", lambda *args, **options: []
    )  # figures take longer than all the rest
    calls = [
        ("plan", tmp_path / "s.yaml"),
        ("run", tmp_path / "s.yaml", "--out", results),
        ("verify", results),
        ("compare", results, "--baseline", results),
        ("report", results, "--format", "markdown"),
    ]
    for args in calls:
        if args[0] == "report":
            monkeypatch.undo()
        code, printed = command(monkeypatch, capsys, *args)
        assert code == 0, printed
        assert quiet(printed.out), args
        assert quiet(printed.err), args
    (page,) = (results / "report").rglob("*.md")
    assert "<script>alert(1)</script>" not in page.read_text()
    assert quiet(page.read_text())


def calls_in(file):
    """(dotted name, call) of every call in a source file."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def test_no_source_of_the_harness_unpickles_evaluates_or_starts_a_shell():
    forbidden = {
        "eval",
        "exec",
        "compile",
        "os.system",
        "os.popen",
        "yaml.load",
        "yaml.unsafe_load",
        "yaml.full_load",
        "pickle.load",
        "pickle.loads",
        "dill.loads",
        "marshal.loads",
        "shelve.open",
        "pandas.read_pickle",
        "pd.read_pickle",
    }
    allowed = {
        ("dpflbench/testing/rules.py", "pickle.loads"),  # of what it has just pickled itself
        ("dpflbench/execution/apart.py", "pickle.loads"),  # in the shut-in process, of what the loop sent it
    }
    for file in sorted((REPO / "dpflbench").rglob("*.py")) + sorted(
        (REPO / "plugins" / "dpflbench_algorithms").rglob("*.py")
    ):
        where = file.relative_to(REPO).as_posix()
        for name, call in calls_in(file):
            keywords = {k.arg: ast.unparse(k.value) for k in call.keywords}
            assert name not in forbidden or (where, name) in allowed, f"{where}:{call.lineno} calls {name}"
            assert keywords.get("shell", "False") == "False", f"{where}:{call.lineno} starts a shell"
            assert keywords.get("allow_pickle", "False") == "False", f"{where}:{call.lineno} allows pickles"
            if name == "torch.load":
                assert keywords.get("weights_only") == "True", f"{where}:{call.lineno} loads a pickle"
