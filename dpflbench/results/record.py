"""The record of one run: its schema, its digests, its JSON form.

A record is data, never code: JSON with arrays as compressed base64. Everything but `measured` (times, machine) is a
function of the configuration, and the digest covers just that: the same run twice on a CPU has the same digest. What
was measured has a digest of its own.
"""

import binascii
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dpflbench.canonical import content_digest, decode, encode
from dpflbench.errors import DpflbenchError

SCHEMA = 2  # of records and of the manifest beside them
Status = Literal["done", "diverged", "disqualified", "failed"]
Array = NDArray[Any]


class RecordError(DpflbenchError):
    """A record that is truncated, edited, of another schema, or not a record."""


class OtherVersion(RecordError):
    """A record or manifest of another schema."""


def check_schema(found: object, where: str) -> None:
    """OtherVersion unless this version reads that schema; it says what to do."""
    if found == 1:
        raise OtherVersion(
            f"{where}: made by dpflbench 0.1 (schema 1); this version reads {SCHEMA}: "
            "run the suite again, or read it with dpflbench 0.1"
        )
    if found != SCHEMA:
        raise OtherVersion(f"{where}: schema {found!r:.60}, this version reads {SCHEMA}")


@dataclass(frozen=True, slots=True)
class Metric:
    """What utility means in a run."""

    name: str  # accuracy, mse
    unit: str  # %, or empty
    higher_is_better: bool


ACCURACY = Metric("accuracy", "%", True)
MSE = Metric("mse", "", False)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Record:
    """One run: what was asked, what came out, what it cost each client.

    rounds    arrays over evaluated rounds: round (rounds done), utility_global, loss
    final     utility_global (phi = identity), utility_mean_phi, utility_personal, loss, best_utility_global, best_round
    clients   arrays [N]: n_examples, epsilon, delta, uses, weight (over the run), epsilon_spent, utility_shared (shared
              model, own held-out shard), utility_personal (own phi, own held-out shard), n_holdout
    events    arrays, one row a release: client, round, kind (0 gradient, 1 loss, 2 joint), sensitivity, scale, cost
    facts     dim, phi_dim, n_train, n_test, n_classes, gradient_path, data_digest, split_digest, features_fitted
              (false, or not there), initial_model, final_model, mechanism (name, law, accountant, clip_norm),
              references (utility of trivial models), ledger_digest, ledger_chain (privacy/chain.py: a link a round),
              noise_efficiency, data_coverage, why (how those were had: weights, rounds, variance, limit, mean_limit)
    notes     what selectors wanted kept, one mapping a plan, arrays allowed
    measured  seconds, cpu_seconds (rounds only), gradient_seconds; round_seconds, round_gradient_seconds and
              samples_per_second without the first round; started, device, threads, kernels, versions, machine,
              processor, commit (of a checkout), reference_seconds, numerics and cpu (execution/yardstick.py), modules
              (with a digest each: what to compare when a record is stale)
    """

    id: str
    status: Status
    reason: str
    config: Mapping[str, Any]
    algorithm: str
    private: bool
    metric: Metric
    rounds: Mapping[str, Array] = field(default_factory=dict)
    final: Mapping[str, float] = field(default_factory=dict)
    clients: Mapping[str, Array] = field(default_factory=dict)
    events: Mapping[str, Array] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: list[Mapping[str, Any]] = field(default_factory=list)
    plugins: Mapping[str, str] = field(default_factory=dict)  # harness or part → digest of its sources
    measured: Mapping[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 over all but `measured`."""
        return content_digest(_content(self))

    @property
    def measured_digest(self) -> str:
        """SHA-256 over `measured`, and the run it was measured on."""
        return content_digest([self.id, self.measured])


def dumps(record: Record) -> str:
    """The JSON text of a record."""
    digests = {"digest": record.digest, "measured_digest": record.measured_digest}
    body = {"schema": SCHEMA, **digests, **_content(record), "measured": dict(record.measured)}
    return json.dumps(encode(body), indent=1, sort_keys=True, allow_nan=False)


def loads(text: str, where: str = "record", room: list[int] | None = None) -> Record:
    """The record in a JSON text; RecordError says what is wrong with it. `room` counts the bytes that the arrays of
    all records read with it may take.
    """
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise RecordError(f"{where}: truncated or not JSON ({_line(e)})") from None
    if not isinstance(body, dict) or "schema" not in body:
        raise RecordError(f"{where}: not a dpflbench record")
    check_schema(body["schema"], where)
    if body.get("status") not in get_args(Status):
        raise RecordError(f"{where}: status {body.get('status')!r:.60}; allowed: {', '.join(get_args(Status))}")
    names = {f.name for f in fields(Record)}
    try:
        values = decode({k: body[k] for k in names}, room)
        values["metric"] = Metric(**values["metric"])
        record = Record(**values)
        _check_shape(record)
        whole = {
            "content": record.digest == body.get("digest"),
            "what was measured": record.measured_digest == body.get("measured_digest"),
        }
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        RecursionError,
        OverflowError,
        zlib.error,
        binascii.Error,
    ) as e:
        raise RecordError(f"{where}: damaged ({type(e).__name__}: {_line(e)})") from None
    for what, matches in whole.items():
        if not matches:
            raise RecordError(f"{where}: {what} does not match its digest; it was edited or damaged")
    return record


def _check_shape(record: Record) -> None:
    """ValueError unless everything is of the kind its readers rely on: digests do not vouch for a record somebody made
    up.
    """
    texts = {
        "id": record.id,
        "reason": record.reason,
        "algorithm": record.algorithm,
        "metric.name": record.metric.name,
        "metric.unit": record.metric.unit,
    }
    for name, text in texts.items():
        if not isinstance(text, str):
            raise ValueError(f"{name} is no text")
    if not isinstance(record.private, bool) or not isinstance(record.metric.higher_is_better, bool):
        raise ValueError("private and metric.higher_is_better must be true or false")
    for name in ("config", "facts", "measured", "plugins", "final", "rounds", "clients", "events"):
        if not isinstance(getattr(record, name), dict):
            raise ValueError(f"{name} is no mapping")
    if type(record.config.get("seed", 0)) is not int:
        raise ValueError("config.seed is no integer")
    for name in ("rounds", "clients", "events"):
        columns = getattr(record, name).values()
        if (
            not all(isinstance(column, np.ndarray) and column.ndim for column in columns)
            or len({len(c) for c in columns}) > 1
        ):
            raise ValueError(f"{name} must hold arrays of one length")
    if not all(isinstance(v, int | float) for v in record.final.values()):
        raise ValueError("final must hold numbers")
    if not isinstance(record.notes, list) or not all(isinstance(note, dict) for note in record.notes):
        raise ValueError("notes must be a list of mappings")


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _content(record: Record) -> dict[str, Any]:
    body = {f.name: getattr(record, f.name) for f in fields(record) if f.name != "measured"}
    return {**body, "metric": asdict(record.metric)}
