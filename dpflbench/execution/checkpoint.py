"""A run half done, as bytes: the state of model, transforms, aggregator, plan, noisy losses and ledger after a round.

Streams need no place here: every generator belongs to one round. A checkpoint is data, never code: it is read with
`weights_only`, and only where it belongs to the same run and noise, on the same kind of device with the same last bits;
elsewhere the run starts over, so that a resumed run always equals an uninterrupted one.
"""

import hashlib
import io
import pickle
import time
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpflbench.errors import DpflbenchError
from dpflbench.execution.yardstick import numerics
from dpflbench.federation.calibration import Calibration
from dpflbench.federation.evaluate import Point
from dpflbench.federation.gradients import chosen
from dpflbench.federation.pull import Pull
from dpflbench.federation.simulate import Clock, State, World
from dpflbench.interfaces import AdaptiveClip, Event, Losses, Plan, Probe
from dpflbench.privacy.ledger import Ledger
from dpflbench.privacy.unprotected import Unlimited
from dpflbench.randomness import Streams

SCHEMA = 4
ARRAY, PLACED = (
    "dpflbench/array",
    "dpflbench/placed",
)  # mark a tensor that was an array, and one that lay on an accelerator


class CheckpointError(DpflbenchError):
    """A state that cannot be kept, or a checkpoint that cannot be used; the run then starts from its first round."""


def pack(run: str, device: str, streams: Streams, state: State, ledger: Ledger | Unlimited, clock: Clock) -> bytes:
    """A checkpoint; CheckpointError if a plugin's state holds what a checkpoint cannot."""
    body = {
        "schema": SCHEMA,
        "run": run,
        **fingerprint(device, streams),
        "round": state.round,
        "clock": {
            "gradient": clock.gradient,
            "samples": clock.samples,
            "seconds": time.perf_counter() - clock.started,
            "cpu": time.process_time() - clock.cpu,
        },
        "state": {name: freeze(value, f"state.{name}") for name, value in _kept(state).items()},
        "ledger": freeze(ledger.state(), "ledger"),
    }
    buffer = io.BytesIO()
    torch.save(body, buffer)
    return hashlib.sha256(buffer.getvalue()).hexdigest().encode() + b"\n" + buffer.getvalue()


def unpack(
    data: bytes, run: str, device: str, world: World, ledger: Ledger | Unlimited
) -> tuple[State, Ledger | Unlimited, Clock]:
    """What `pack` was given; CheckpointError says why a checkpoint cannot be used for this run."""
    body = _read(data)
    if body.get("schema") != SCHEMA or body.get("run") != run:
        raise CheckpointError(
            f"belongs to run {body.get('run')!r} in schema {body.get('schema')!r}, not to {run} in {SCHEMA}"
        )
    for name, here in fingerprint(device, world.streams).items():
        if body.get(name) != here:
            raise CheckpointError(f"was made with {name} {body.get(name)}, here it is {here}")
    try:
        parts = {name: thaw(value, device) for name, value in body["state"].items()}
        state = _rebuilt(parts)
        restored = ledger.restored(thaw(body["ledger"]))
        times = body["clock"]
        clock = Clock(
            times["gradient"],
            times["samples"],
            time.perf_counter() - times["seconds"],
            time.process_time() - times["cpu"],
        )
        _check(state, restored, world)
    except (KeyError, TypeError, ValueError, AttributeError, DpflbenchError) as e:
        raise CheckpointError(f"does not fit the run ({type(e).__name__}: {e})") from None
    return state, restored, clock


def round_of(data: bytes) -> int | None:
    """The rounds a checkpoint has done; None if it cannot be read."""
    try:
        return int(_read(data)["round"])
    except (CheckpointError, KeyError, TypeError, ValueError):
        return None


def fingerprint(device: str, streams: Streams) -> dict[str, str]:
    """What must agree for a resumed run to equal an uninterrupted one: kind of device, the last bits computed here,
    and the noise.
    """
    noise = hashlib.sha256(streams.stream_key("noise", 0)).hexdigest()[:16]
    bits = {"numerics": numerics(torch.get_num_threads()), "kernels": chosen()}
    return {"device": torch.device(device).type, **bits, "noise": noise}


def freeze(value: Any, where: str) -> Any:
    """The value with arrays as marked tensors; CheckpointError names what is neither number, text, array nor a
    container of those.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, Tensor):
        value = value.detach()
        return value if value.device.type == "cpu" else (PLACED, value.cpu())
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        try:
            return (ARRAY, torch.from_numpy(np.array(value, order="C")))
        except TypeError:
            raise CheckpointError(f"{where}: an array of {value.dtype} cannot be checkpointed") from None
    if isinstance(value, Mapping):
        return {freeze(k, where): freeze(v, f"{where}.{k}") for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(freeze(v, f"{where}[{i}]") for i, v in enumerate(value))
    raise CheckpointError(
        f"{where}: {type(value).__name__} cannot be checkpointed; None, numbers, tensors, arrays, dicts, lists and "
        "tuples can"
    )


def thaw(value: Any, device: str = "cpu") -> Any:
    """The inverse of `freeze`; what lay on an accelerator goes to `device`, which may be another one of its kind."""
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str) and value[0] in (ARRAY, PLACED):
        return value[1].numpy() if value[0] == ARRAY else value[1].to(device)
    if isinstance(value, dict):
        return {k: thaw(v, device) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(thaw(v, device) for v in value)
    return value


def _read(data: bytes) -> dict[str, Any]:
    digest, _, content = data.partition(b"\n")
    if hashlib.sha256(content).hexdigest().encode() != digest:
        raise CheckpointError("is damaged: its content does not match its digest")
    try:
        body = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, ValueError, KeyError, TypeError, AttributeError, pickle.UnpicklingError) as e:
        raise CheckpointError(f"is damaged ({type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''})") from None
    if not isinstance(body, dict):
        raise CheckpointError("is not a checkpoint")
    return body


def _kept(state: State) -> dict[str, Any]:
    """What of a state is kept; a plan's notes are among the state's own already, and a part's state is its own
    business.
    """
    plan = None if state.plan is None else replace(state.plan, notes={})
    parts = {"aggregator": state.aggregator, "shared": state.shared}
    return {**_plain(replace(state, plan=plan, aggregator=None, shared=None)), **parts}


def _plain(value: Any) -> Any:
    """The dataclasses inside a state as mappings."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _rebuilt(parts: dict[str, Any]) -> State:
    plan, calibration = parts["plan"], parts["calibration"]
    if plan is not None:
        asked = {
            name: None if plan[name] is None else kind(**plan[name])
            for name, kind in (("probe", Probe), ("adaptive", AdaptiveClip))
        }
        plan = Plan(**{**plan, **asked})
    if calibration is not None:
        events = {
            name: None if calibration[name] is None else Event(**calibration[name])
            for name in ("message", "loss", "quantile")
        }
        calibration = Calibration(**{**calibration, **events})
    points = tuple((done, Point(**point)) for done, point in parts["points"])
    losses, notes = Losses(**parts["losses"]), tuple(parts["notes"])
    parts["server"], parts["bounds"] = tuple(parts["server"]), tuple(parts["bounds"])
    built = {"plan": plan, "calibration": calibration, "points": points, "losses": losses, "notes": notes}
    return State(**{**parts, **built, "pull": Pull(**parts["pull"])})


def _check(state: State, restored: Ledger | Unlimited, world: World) -> None:
    """ValueError unless the state is one of this run and every participation is in the ledger."""
    if not 0 <= state.round <= world.setup.rounds or state.theta.numel() != world.setup.layout.dim:
        raise ValueError(f"round {state.round}, {state.theta.numel()} parameters")
    charged = restored.used if world.setup.cohorts == "exact" else np.where(restored.used > 0, state.used, 0)
    if not np.array_equal(charged, state.used):
        raise ValueError("the ledger does not hold every participation")
