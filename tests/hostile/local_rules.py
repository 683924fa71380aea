"""Local rules that break one rule each; `Plain` is what they are variations of."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from dpflbench.interfaces import Finished, Plain, moved
from dpflbench_algorithms.local_training import OwnModel


@dataclass(frozen=True)
class OneDirection(Plain):
    """One step for all clients."""

    def direction(self, noisy, model, visit):
        return noisy.mean(0)


@dataclass(frozen=True)
class DoubleSteps(Plain):
    """Steps in another precision."""

    def direction(self, noisy, model, visit):
        return noisy.double()


@dataclass(frozen=True)
class LeansOnOthers(Plain):
    """Pulls clients to what the others of their cohort found."""

    def direction(self, noisy, model, visit):
        return noisy - noisy.mean(0)


@dataclass(frozen=True)
class NoiseOfItsOwn(Plain):
    """Adds noise from torch's own generator."""

    def direction(self, noisy, model, visit):
        return noisy + torch.randn_like(noisy)


@dataclass(frozen=True)
class ChangesTheModel(Plain):
    """Shrinks what it received where it lies."""

    def finish(self, journeys, visit):
        message = moved(journeys[0], visit)
        visit.theta.mul_(0.5)
        return Finished(message, visit.own)


@dataclass(frozen=True)
class RemembersItself(Plain):
    """Keeps the last gradients in its class, where no checkpoint finds them."""

    last: ClassVar[list] = []

    def direction(self, noisy, model, visit):
        self.last.append(noisy)
        return noisy + 0.1 * len(self.last)


@dataclass(frozen=True)
class ForgetsItsRows(OwnModel):
    """Has models at the beginning and none after a round."""

    def finish(self, journeys, visit):
        return Finished(moved(journeys[0], visit), {})


@dataclass(frozen=True)
class RowsOfEverybody(OwnModel):
    """Keeps rows for clients that were not there."""

    def finish(self, journeys, visit):
        return Finished(moved(journeys[0], visit), {"model": visit.theta.expand(visit.n_clients, -1)})


@dataclass(frozen=True)
class OnePersonalModel(Plain):
    """One personal model for all."""

    def personal(self, theta, own):
        return theta


@dataclass(frozen=True)
class BareMessages(Plain):
    """Returns messages alone."""

    def finish(self, journeys, visit):
        return moved(journeys[0], visit)


@dataclass(frozen=True)
class NoPasses(Plain):
    """Never goes over its steps."""

    passes: ClassVar[int] = 0
