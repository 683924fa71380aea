"""Streams: a fresh generator for each purpose and round, from SHA-256 of (seed, purpose, round).

The algorithm is no coordinate, so runs that differ only in it share data, budgets, initial model and noise draws; and a
run can go on from any round, because no generator outlives one.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
import torch

Purpose = Literal["split", "budgets", "init", "select", "noise", "transform", "probe"]
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Streams:
    """All randomness of a run, addressed by purpose and round."""

    seed: int

    def key(self, purpose: Purpose, round: int = 0) -> int:
        """The 63-bit seed of one stream."""
        digest = hashlib.sha256(f"dpflbench/{self.seed}/{purpose}/{round}".encode()).digest()
        return int.from_bytes(digest[:8], "big") >> 1

    def numpy(self, purpose: Purpose, round: int = 0) -> np.random.Generator:
        """A NumPy generator for decisions on the host: splits, budgets, selection."""
        return np.random.default_rng(self.key(purpose, round))

    def torch(self, purpose: Purpose, round: int = 0, device: torch.device | str = "cpu") -> torch.Generator:
        """A torch generator for draws on the device: noise."""
        return torch.Generator(device=device).manual_seed(self.key(purpose, round))

    def isolated(self, purpose: Purpose, build: Callable[[], R]) -> R:
        """What `build()` returns when torch's global generator starts from this stream; the global state is put back.

        For modules that initialise themselves from the global generator, as torch's own layers do.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.key(purpose))  # noqa: TID251  # inside fork_rng: nothing outside sees it
            return build()
