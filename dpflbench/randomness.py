"""Streams: all randomness of a run, addressed by purpose and round. No generator outlives a round, so a run can go on
from any.

Two kinds. *Paired* streams (split, budgets, init, select, transform) are a function of the suite's seed alone: runs
that differ in algorithm or column share data, budgets, initial model and schedule. They are no secret, and torch's CPU
generator uses 32 bits of their seed. *Secret* streams (noise, probe, batch, cohort) come from a key of at least 128
bits and from the run: whoever does not hold the key cannot subtract the noise, and two runs of one seed share none, so
that the difference of two messages shows nothing. Epsilon is the promise of one run; a table composes many.

Where key and run come from:

* *drawn*: a results folder draws its key once, by `keys.fresh_key()`, and keeps it; records name it, so that runs
  resume and replay to the bit. `run` is the run's id: changed code never shares noise with what it replaces.
* *given*: `--noise-key HEX` repeats somebody's runs; a folder that has another key refuses it.
* *pinned*: a suite names the key (`privacy.noise_key`) for regression gates. `run` is then the digest of the
  configuration alone, so that numbers can be compared across versions.
* `privacy.paired_noise: true` makes `run` empty: all runs of a seed share their noise, differences between algorithms
  vary less, and epsilon holds for one run of the table alone. Off unless asked for; records and tables say so.

A key that was given or pinned was known before the run: its records and tables say "predictable noise", and mark server
code that is not built in.

A key guards against what a server is shown. Code that runs in the same process can read the key, as it can read data.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np
import torch

from dpflbench.draws import Draws
from dpflbench.errors import DpflbenchError
from dpflbench.keys import Origin

Secret = Literal["noise", "probe", "batch", "cohort"]
Purpose = Literal["split", "budgets", "init", "select", "transform"]
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Streams:
    """All randomness of a run; without a key it has no noise."""

    seed: int
    secret: bytes = field(default=b"", repr=False)  # the noise key, 16 to 64 bytes
    run: str = ""  # what keeps noise apart from that of other runs; empty: paired noise
    origin: Origin = "drawn"  # of the key

    def key(self, purpose: Purpose, round: int = 0) -> int:
        """The 63-bit seed of one paired stream."""
        digest = hashlib.sha256(f"dpflbench/{self.seed}/{purpose}/{round}".encode()).digest()
        return int.from_bytes(digest[:8], "big") >> 1

    def numpy(self, purpose: Purpose, round: int = 0) -> np.random.Generator:
        """A NumPy generator for decisions on the host: splits, budgets, selection."""
        return np.random.default_rng(self.key(purpose, round))

    def torch(self, purpose: Purpose, round: int = 0, device: torch.device | str = "cpu") -> torch.Generator:
        """A torch generator for draws on the device."""
        return torch.Generator(device=device).manual_seed(self.key(purpose, round))

    def draws(self, purpose: Secret, round: int) -> Draws:
        """The secret stream of one purpose and round."""
        return Draws(self.stream_key(purpose, round))

    def stream_key(self, purpose: Secret, round: int) -> bytes:
        """256 bits of BLAKE2b, keyed, over everything that tells secret streams apart."""
        if not 16 <= len(self.secret) <= 64:
            raise DpflbenchError(f"noise: its key has {8 * len(self.secret)} bits; allowed: 128 to 512")
        address = f"{self.seed}/{purpose}/{round}/{self.run}"  # the run comes last, whatever it is called
        return hashlib.blake2b(address.encode(), digest_size=32, key=self.secret, person=b"dpflbench noise").digest()

    def facts(self) -> dict[str, Any]:
        """What a record says of its noise: all that it takes to draw it again."""
        return {"key": self.secret.hex(), "run": self.run, "origin": self.origin}

    def isolated(self, purpose: Purpose, build: Callable[[], R]) -> R:
        """What `build()` returns when torch's global generator starts from this stream; the global state is put back.

        For modules that initialise themselves from the global generator, as torch's own layers do.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.key(purpose))  # noqa: TID251  # inside fork_rng: nothing outside sees it
            return build()
