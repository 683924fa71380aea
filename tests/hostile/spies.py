"""Server code that looks around: through garbage collection, stack frames, files, other processes, and what client code
left lying about. Where it finds something it steps by that; where it does not, it is the plain mean.
"""

import gc
import inspect
import json
import operator
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from dpflbench import hookimpl
from dpflbench_algorithms.parts import UniformSelection

LEFT = []  # what a transform of the same plugin left here


def _mean(updates):
    return updates.values.mean(0)


@dataclass(frozen=True)
class CollectsGarbage:
    """Looks for the shards of clients among all objects there are."""

    def init(self, setup):
        return None

    def aggregate(self, updates, state):
        found = [o for o in gc.get_objects() if type(o).__name__ in ("Shards", "Task", "World")]
        return (torch.full_like(_mean(updates), 1.0) if found else _mean(updates)), state


@dataclass(frozen=True)
class ReadsFrames:
    """Climbs the stack to the exact sums."""

    def init(self, setup):
        return None

    def aggregate(self, updates, state):
        seen = [v for frame in inspect.stack() for v in frame.frame.f_locals.values()]
        found = [v for v in seen if type(v).__name__ in ("World", "Attempt", "Streams")]
        return (torch.full_like(_mean(updates), 1.0) if found else _mean(updates)), state


@dataclass(frozen=True)
class ReadsTheKey:
    """Reads the noise key from the results folder, whose place it was told."""

    folder: str = ""

    def init(self, setup):
        return None

    def aggregate(self, updates, state):
        try:
            json.loads((Path(self.folder) / "noise-key.json").read_text())
        except OSError:
            return _mean(updates), state
        return torch.full_like(_mean(updates), 1.0), state


@dataclass(frozen=True)
class ReadsItsParent:
    """Reads command lines and memory of the processes around it."""

    def init(self, setup):
        return None

    def aggregate(self, updates, state):
        for pid in [os.getppid(), *(int(p) for p in _listed("/proc") if p.isdigit() and int(p) != os.getpid())]:
            for name in ("mem", "cmdline", "environ"):
                try:
                    with open(f"/proc/{pid}/{name}", "rb") as file:
                        file.read(1)
                        return torch.full_like(_mean(updates), 1.0), state
                except OSError:
                    continue
        return _mean(updates), state


def _listed(folder):
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _shards():
    """What an object that is made, or pickled, beside data finds of it."""
    return [o for o in gc.get_objects() if type(o).__name__ == "Shards"]


@dataclass(frozen=True)
class Smuggles:
    """Takes data along when it is pickled, or has it from the factory that made it."""

    taken: int = 0

    def __getstate__(self):
        return {"taken": len(_shards())}

    def __setstate__(self, state):
        object.__setattr__(self, "taken", state["taken"])

    def init(self, setup):
        return None

    def aggregate(self, updates, state):
        return (torch.full_like(_mean(updates), 1.0) if self.taken else _mean(updates)), state


def packs_at_once():
    """A factory that packs."""
    return Smuggles(len(_shards()))


@dataclass(frozen=True)
class ReadsItsOrders:
    """Looks for a noise key in the command line and the environment it was given."""

    key: str

    def init(self, setup):
        return None

    def aggregate(self, updates, state):
        found = any(self.key in text for text in (*sys.argv, *os.environ.values()))
        return (torch.full_like(_mean(updates), 1.0) if found else _mean(updates)), state


@dataclass(frozen=True)
class Memorises:
    """A transform that keeps what passes through it where an aggregator of its plugin can find it."""

    norm_local: bool = False

    def init(self, n_clients, input_shape, layout, rng):
        return torch.zeros(n_clients, 1)

    def apply(self, phi, x):
        LEFT.append(x)
        return x + 0.0 * phi[:, :1].reshape(-1, *[1] * (x.dim() - 1))


@dataclass(frozen=True)
class Remembers:
    """Steps by what the transform left."""

    def init(self, setup):
        return None

    def aggregate(self, updates, state):
        return (torch.full_like(_mean(updates), 1.0) if LEFT else _mean(updates)), state


@dataclass(frozen=True)
class Writes:
    """Leaves a file for somebody."""

    path: str

    def init(self, setup):
        return None

    def aggregate(self, updates, state):
        try:
            Path(self.path).write_text("seen")
        except OSError:
            return _mean(updates), state
        return torch.full_like(_mean(updates), 1.0), state


@dataclass(frozen=True)
class Forges:
    """Returns an object that runs code where it is unpickled."""

    path: str

    def init(self, setup):
        return None

    def aggregate(self, updates, state):
        return _mean(updates), Bomb(self.path)


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.write_text, (Path(self.path), "boom")


@dataclass(frozen=True)
class Dies:
    """Ends its process in the third round."""

    def init(self, setup):
        return None

    def aggregate(self, updates, state):
        if updates.round == 2:
            os._exit(3)
        return _mean(updates), state


@dataclass(frozen=True)
class Stumbles:
    """Raises."""

    def init(self, setup):
        return None

    def aggregate(self, updates, state):
        raise ZeroDivisionError("by hand")


@dataclass(frozen=True)
class Leaves:
    """A global of its module that grows: what one run leaves, the next one finds."""

    def init(self, setup):
        return None

    def aggregate(self, updates, state):
        LEFT.append(updates.round)
        return torch.full_like(_mean(updates), float(len(LEFT) > updates.round + 1)), state


@dataclass(frozen=True)
class WritesInto:
    """A selector that helps itself."""

    what: str

    def plan(self, view, rng):
        array = operator.attrgetter(self.what)(view)
        array.setflags(write=True)
        array[...] = 100
        return UniformSelection().plan(view, rng)


@hookimpl
def dpflbench_aggregators():
    kinds = (CollectsGarbage, ReadsFrames, ReadsTheKey, ReadsItsParent, ReadsItsOrders, Smuggles, Remembers)
    kinds += (Writes, Forges, Dies, Stumbles, Leaves)
    return {"PacksAtOnce": packs_at_once, **{kind.__name__: kind for kind in kinds}}


@hookimpl
def dpflbench_transforms():
    return {"Memorises": Memorises}


@hookimpl
def dpflbench_selectors():
    return {"WritesInto": WritesInto}
