"""The record of one run: its schema, its content digest, its JSON form.

A record is data, never code: JSON with arrays as compressed base64. Everything but `measured` (times, machine) is a
function of the configuration, and the digest covers just that: the same run twice on a CPU has the same digest.
"""

import base64
import binascii
import hashlib
import json
import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dpflbench.errors import DpflbenchError

SCHEMA = 1
Status = Literal["done", "diverged", "disqualified", "failed"]
Array = NDArray[Any]
MAX_ARRAY_BYTES, MAX_RECORD_BYTES = 1 << 28, 1 << 30  # unpacked: 10 million releases fit, a bomb does not
DTYPES = {"<f8", "<f4", "<i8", "<i4", "<i2", "|i1", "|u1", "|b1"}


class RecordError(DpflbenchError):
    """A record that is truncated, edited, of another schema, or not a record."""


@dataclass(frozen=True, slots=True)
class Metric:
    """What utility means in a run."""

    name: str  # accuracy, mse
    unit: str  # %, or empty
    higher_is_better: bool


ACCURACY = Metric("accuracy", "%", True)
MSE = Metric("mse", "", False)


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """One run: what was asked, what came out, what it cost each client.

    rounds    arrays over evaluated rounds: round (rounds done), utility_global, loss
    final     utility_global (phi = identity), utility_mean_phi, utility_personal, loss, best_utility_global, best_round
    clients   arrays [N]: n_examples, epsilon, delta, uses, epsilon_spent, utility_shared (shared model, own held-out
              shard), utility_personal (own phi, own held-out shard), n_holdout
    events    arrays, one row a release: client, round, kind (0 gradient, 1 loss, 2 joint), sensitivity, scale, cost
    facts     dim, phi_dim, n_train, n_test, n_classes, gradient_path, data_digest, split_digest, initial_model,
              final_model, mechanism (name, clip_norm), references (utility of trivial models)
    notes     what selectors wanted kept, one mapping a plan, arrays allowed
    measured  seconds, cpu_seconds (rounds only), gradient_seconds, samples_per_second, started, device, threads,
              versions, machine, reference_seconds, numerics and cpu (execution/reference.py)
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
    plugins: Mapping[str, str] = field(default_factory=dict)  # distribution → version and source digest
    measured: Mapping[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 over all but `measured`."""
        return content_digest(_content(self))


def content_digest(value: Any) -> str:
    """SHA-256 of the canonical JSON of a value: the order of keys does not matter, nor how zlib packs an array."""
    text = json.dumps(encode(value, _fingerprint), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def dumps(record: Record) -> str:
    """The JSON text of a record."""
    body = {"schema": SCHEMA, "digest": record.digest, **_content(record), "measured": dict(record.measured)}
    return json.dumps(encode(body), indent=1, sort_keys=True, allow_nan=False)


def loads(text: str, where: str = "record") -> Record:
    """The record in a JSON text; RecordError says what is wrong with it."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise RecordError(f"{where}: truncated or not JSON ({_line(e)})") from None
    if not isinstance(body, dict) or "schema" not in body:
        raise RecordError(f"{where}: not a dpflbench record")
    if body["schema"] != SCHEMA:
        raise RecordError(f"{where}: schema {body['schema']!r:.60}, this version reads {SCHEMA}")
    if body.get("status") not in get_args(Status):
        raise RecordError(f"{where}: status {body.get('status')!r:.60}; allowed: {', '.join(get_args(Status))}")
    names = {f.name for f in fields(Record)}
    try:
        values = decode({k: body[k] for k in names})
        values["metric"] = Metric(**values["metric"])
        record = Record(**values)
        _check_shape(record)
        digest = record.digest
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
    if digest != body.get("digest"):
        raise RecordError(f"{where}: content does not match its digest; it was edited or damaged")
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


def _pack(raw: bytes) -> str:
    return base64.b64encode(zlib.compress(raw, 9)).decode()


def _fingerprint(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def encode(value: Any, pack: Callable[[bytes], str] = _pack) -> Any:
    """A value as JSON: arrays compressed, non-finite floats as strings, keys as strings."""
    if isinstance(value, np.ndarray):
        flat = np.ascontiguousarray(value)
        flat = flat.astype(flat.dtype.newbyteorder("<"))
        if flat.dtype.str not in DTYPES:  # what `decode` would refuse must not be written
            raise TypeError(f"an array of {value.dtype} cannot be kept in a record; {', '.join(sorted(DTYPES))} can")
        return {"array": flat.dtype.str, "shape": list(value.shape), "zlib": pack(flat.tobytes())}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if isinstance(value, Mapping):
        return {str(k): encode(v, pack) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [encode(v, pack) for v in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(
        f"{type(value).__name__} cannot be kept in a record; numbers, texts, arrays, lists and mappings can"
    )


def decode(value: Any, room: list[int] | None = None) -> Any:
    """The inverse of `encode`; ValueError where an encoded array is not what it says. `room` counts the bytes all
    arrays may take.
    """
    room = [MAX_RECORD_BYTES] if room is None else room
    if isinstance(value, list):
        return [decode(v, room) for v in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"float"}:
        return float(value["float"])
    if set(value) == {"array", "shape", "zlib"}:
        return _decode_array(value["array"], value["shape"], value["zlib"], room)
    return {k: decode(v, room) for k, v in value.items()}


def _decode_array(dtype: str, shape: list[int], packed: str, room: list[int]) -> Array:
    if dtype not in DTYPES:
        raise ValueError(f"array type {dtype!r:.60}")
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"array shape {shape!r:.60}")
    expected = math.prod(shape) * np.dtype(dtype).itemsize
    if expected > min(MAX_ARRAY_BYTES, room[0]):
        raise ValueError("arrays larger than a record may hold")
    room[0] -= expected
    # decompress no more than the shape says: a record from a stranger may be a bomb
    raw = zlib.decompressobj().decompress(base64.b64decode(packed, validate=True), expected + 1)
    if len(raw) != expected:
        raise ValueError(f"array has {len(raw)} bytes, its shape says {expected}")
    return np.frombuffer(raw, dtype=dtype).reshape(shape).copy()


def _content(record: Record) -> dict[str, Any]:
    body = {f.name: getattr(record, f.name) for f in fields(record) if f.name != "measured"}
    return {**body, "metric": asdict(record.metric)}
