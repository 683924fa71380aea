"""The key that all noise of a run hangs on: how long, where from, how it is written. `randomness.py` says what for."""

import secrets
from typing import Literal

from dpflbench.errors import DpflbenchError

Origin = Literal["drawn", "given", "pinned"]  # for a results folder, on the command line, in a suite
SMALLEST_DELTA = 2.0**-64  # 2^64 trials find a key of 128 bits with that probability: a smaller delta cannot be kept


def fresh_key() -> bytes:
    """128 bits nobody knows."""
    return secrets.token_bytes(16)


def key_of(text: str, where: str) -> bytes:
    """A key as people write it: 32 to 128 hexadecimal digits."""
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if not 16 <= len(key) <= 64:
        raise DpflbenchError(
            f"{where}: {text!r:.140} is no noise key; allowed: 32 to 128 hexadecimal digits, an even number"
        )
    return key
