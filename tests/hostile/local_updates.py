"""Local updates with the four mistakes of sampled training that are made most: whole ones, to be run and attacked.

Each is `minibatch` but for one thing, and takes its parameters: `OneCoin(lr=0.1, steps=10, batch=8)`.
"""

import dataclasses

import torch

from dpflbench.federation.gradients import Sums
from dpflbench.federation.minibatch import Minibatch


class HalfTheRate(Minibatch):
    """Draws twice as many records as its event says."""

    def event(self, *given):
        honest = super().event(*given)
        return dataclasses.replace(honest, rate=honest.rate / 2)

    def compute(self, work, protect):
        event = dataclasses.replace(work.event, rate=work.event.rate * 2)
        return super().compute(dataclasses.replace(work, event=event), protect)


class NoiseAtTheLastStep(Minibatch):
    """Steps by exact gradients and keeps the noise of its last step alone."""

    def compute(self, work, protect):
        calls = []

        def late(value, rows=None):
            calls.append(protect(value, rows))
            return calls[-1] if len(calls) == int(work.event.steps.max()) else value

        return super().compute(work, late)


class DividesByTheBatch(Minibatch):
    """Divides by the realised size of a batch instead of the expected one."""

    def compute(self, work, protect):
        expected = torch.as_tensor(work.event.rate * work.shards.sizes[work.cohort])
        return super().compute(dataclasses.replace(work, engine=Realised(work.engine, expected)), protect)


class Realised:
    """An engine whose sums are larger where a batch is smaller than expected."""

    def __init__(self, engine, expected):
        self.engine, self.expected = engine, expected

    def batch_sums(self, theta, phi, shards, rows, counts, clip_norm):
        sums = self.engine.batch_sums(theta, phi, shards, rows, counts, clip_norm)
        factor = (self.expected / torch.as_tensor(counts).clamp(min=1))[:, None]
        return Sums(sums.theta * factor, sums.phi * factor, None)


class OneCoin(Minibatch):
    """Draws one batch and uses it for all steps of a participation."""

    def compute(self, work, protect):
        return super().compute(dataclasses.replace(work, batches=Stuck(work.batches)), protect)


class Stuck:
    """Draws that come once."""

    def __init__(self, draws):
        self.draws, self.first = draws, None

    def coins(self, rate):
        self.first = self.draws.coins(rate) if self.first is None else self.first
        return self.first


MISTAKES = (HalfTheRate, NoiseAtTheLastStep, DividesByTheBatch, OneCoin)
