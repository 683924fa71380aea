"""Values as canonical JSON: what is hashed into ids and digests, and what a record or manifest holds.

Data, never code: numbers, texts, lists, mappings, and arrays as compressed base64. Equal values have equal digests, on
every machine.
"""

import base64
import hashlib
import json
import math
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
MAX_ARRAY_BYTES, MAX_RECORD_BYTES = 1 << 28, 1 << 30  # unpacked: 10 million releases fit, a bomb does not
PLAIN = {str, int, bool, type(None)}
DTYPES = {"<f8", "<f4", "<i8", "<i4", "<i2", "|i1", "|u1", "|b1"}


def content_digest(value: Any) -> str:
    """SHA-256 of the canonical JSON of a value: the order of keys does not matter, nor how zlib packs an array."""
    text = json.dumps(encode(value, _fingerprint), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _pack(raw: bytes) -> str:
    return base64.b64encode(zlib.compress(raw, 9)).decode()


def _fingerprint(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def encode(value: Any, pack: Callable[[bytes], str] = _pack) -> Any:
    """A value as JSON: arrays compressed, non-finite floats as strings, keys as strings."""
    if type(value) in PLAIN:  # most of all there is, and asking for its kind is most of the work
        return value
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
