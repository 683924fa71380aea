"""Server code (selector and aggregator) in a process of its own, which holds no client data and no noise key.

It is handed the run's configuration and the public facts of its `Setup` once, then those of `PlanView`s, cohorts and
noisy updates, and sends back plans, weights, directions and states: plain data both ways (wire.py). It makes the parts
itself, by the factories their plugins name: one that was made beside the data could bring some of it along, in a field
or when it is pickled. The loop sees parts like any others. A *nursery* is where such processes come from: started
afresh, it has imported what is built in and been told nothing; each run gets a fork of it, shut in by sandbox.py, and
the fork ends with the run. So no attribute, global, frame or object of the process with the data can be reached, and
what one run's server code leaves behind no other run's finds.
"""

import contextlib
import os
import signal
import socket
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields, replace
from multiprocessing import connection, reduction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpflbench.assembly import Assembly, assemble
from dpflbench.catalogue import Catalogue, Part, load_built_in, part_of
from dpflbench.errors import DpflbenchError, PluginError, SuiteError
from dpflbench.execution import processes, sandbox
from dpflbench.execution.wire import pack, unpack
from dpflbench.federation.local import protecting
from dpflbench.hookspecs import KINDS
from dpflbench.interfaces import (
    AdaptiveClip,
    Algorithm,
    Cohort,
    Layout,
    LearningRate,
    LinearAggregator,
    Losses,
    ParameterTensor,
    Plan,
    PlanView,
    Probe,
    ReportsWeights,
    RowAggregator,
    Selector,
    Setup,
    State,
    Updates,
)
from dpflbench.suite_schema import Normalised, Raw

START, END = b"start", b"end"
MADE_THERE = ("mechanism", "accountant", "local", "trust")  # of a Setup, which the other side makes for itself
_lock = threading.Lock()
_nursery: list["Nursery"] = []  # of this process


@dataclass(slots=True)
class Nursery:
    """A process that forks processes of server code."""

    pipe: Any
    process: Any = None  # if it is a child of this process

    def start(self) -> Any:
        """A pipe to a new process of server code."""
        ours, theirs = socket.socketpair()
        self.pipe.send_bytes(START)
        with theirs:
            reduction.send_handle(self.pipe, theirs.fileno(), 0)
        self.pipe.recv_bytes()
        return connection.Connection(ours.detach())

    def end(self) -> None:
        """End the process it started last, by force if need be."""
        self.pipe.send_bytes(END)
        self.pipe.recv_bytes()


def nurse(pipe: Any) -> None:
    """The nursery's loop: one process at a time, until nobody needs it any more."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # how the process that started it ends it
    load_built_in()  # what strangers bring, no two runs share
    child = 0
    with contextlib.suppress(EOFError, OSError):
        while True:
            asked = pipe.recv_bytes()
            if child:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                child = 0
            if asked == END:
                pipe.send_bytes(b"")
                continue
            handle = reduction.recv_handle(pipe)
            child = os.fork()
            if not child:
                pipe.close()
                _serve(connection.Connection(handle))
                os._exit(0)
            os.close(handle)
            pipe.send_bytes(b"")
    if child:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def open_nursery() -> Nursery:
    """A new nursery; nothing of this process gets into it."""
    ours, theirs = processes.context().Pipe()
    process = processes.context().Process(target=nurse, args=(theirs,), daemon=True, name="dpflbench server code")
    processes.start(process)
    theirs.close()
    return Nursery(ours, process)


def adopt(pipe: Any) -> None:
    """Use a nursery that was started for this process by its parent."""
    _nursery[:] = [Nursery(pipe)]


def _started() -> tuple[Nursery, Any]:
    """A process of server code from this process's nursery, which is opened anew if it is gone."""
    with _lock:
        for _ in range(2):
            if not _nursery:
                _nursery.append(open_nursery())
            try:
                return _nursery[0], _nursery[0].start()
            except (OSError, EOFError):
                _nursery.clear()
    raise DpflbenchError("no process for server code can be started here; run with --no-isolated")


def possible() -> bool:
    """Whether processes can be forked and handed a pipe here."""
    return hasattr(os, "fork") and hasattr(socket, "AF_UNIX")


@contextlib.contextmanager
def apart(assembly: Assembly, setup: Setup) -> Iterator[tuple[Algorithm, str]]:
    """The algorithm of a run with its server code elsewhere, and what keeps it there."""
    nursery, pipe = _started()
    algorithm = assembly.algorithm
    link = Link(pipe, algorithm.name)
    try:
        known = {name: value for name, value in _columns(setup).items() if name not in MADE_THERE}
        known |= {"lr": astuple(setup.lr), "layout": [astuple(tensor) for tensor in setup.layout.tensors]}
        parts = [(part.kind, part.name, part.module) for part in assembly.parts]
        asked = {**assembly.config, "privacy": _without_key(assembly.config.get("privacy", {}))}
        how = link.ask_bytes(pack([asked, parts, known, torch.get_num_threads()], "configuration"))
        given = algorithm.aggregator
        aggregator: Any = RowsApart(link)
        if isinstance(given, LinearAggregator):
            aggregator = WeightsApart(link)
        elif isinstance(given, ReportsWeights):
            aggregator = ReportingRowsApart(link)
        yield replace(algorithm, selector=SelectorApart(link), aggregator=aggregator), str(how)
    finally:
        pipe.close()
        with contextlib.suppress(OSError, EOFError):
            nursery.end()


def _without_key(privacy: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in privacy.items() if name != "noise_key"}


# ---------------------------------------------------------------- on the side of the loop


@dataclass(frozen=True, slots=True)
class Link:
    """Questions to a process of server code."""

    pipe: Any
    who: str

    def ask(self, what: str, **given: Any) -> Any:
        """What it answers; the error it met, with file and line."""
        return self.ask_bytes(pack([what, given]))

    def ask_bytes(self, question: bytes) -> Any:
        """The answer to a question that is packed already."""
        try:
            self.pipe.send_bytes(question)
            kind, answer = unpack(self.pipe.recv_bytes())
        except (EOFError, OSError):
            raise PluginError(f"server code of {self.who} ended its own process") from None
        if kind == "error":
            raise (DpflbenchError if answer["ours"] else PluginError)(answer["text"])
        return answer


@dataclass(frozen=True, slots=True)
class SelectorApart:
    """A selector in another process."""

    link: Link

    def plan(self, view: PlanView, rng: np.random.Generator) -> Plan:
        """Return its plan."""
        facts = {"round": view.round, "used": view.used, "left": view.left, "losses": _columns(view.losses)}
        found = self.link.ask("plan", **facts, rng=rng.bit_generator.state)
        probe, adaptive = found.pop("probe"), found.pop("adaptive")
        return Plan(
            **found,
            probe=None if probe is None else Probe(**probe),
            adaptive=None if adaptive is None else AdaptiveClip(**adaptive),
        )


@dataclass(frozen=True, slots=True)
class WeightsApart:
    """A linear aggregator in another process."""

    link: Link

    def weights(self, cohort: Cohort) -> Tensor | None:
        """Return its weights, on the device of the cohort's facts."""
        facts = {f.name: getattr(cohort, f.name) for f in fields(Cohort)}
        found = self.link.ask("weights", cohort=facts)
        return found.to(cohort.epsilon.device) if isinstance(found, Tensor) else found


@dataclass(frozen=True, slots=True)
class RowsApart:
    """An aggregator of rows in another process; it works on the host."""

    link: Link

    def init(self, setup: Setup) -> State:
        """Return its first state; it has the setup already."""
        return self.link.ask("init")

    def aggregate(self, updates: Updates, state: State) -> tuple[Tensor, State]:
        """Return its direction and next state."""
        direction, after = self.link.ask("aggregate", updates=_columns(updates), state=state)
        return (direction.to(updates.values.device) if isinstance(direction, Tensor) else direction), after


@dataclass(frozen=True, slots=True)
class ReportingRowsApart(RowsApart):
    """One that reports its weights."""

    def effective_weights(self, updates: Updates, state: State) -> Tensor | None:
        """Return them, on the device of the updates."""
        found = self.link.ask("effective_weights", updates=_columns(updates), state=state)
        return found.to(updates.values.device) if isinstance(found, Tensor) else found


def _columns(value: Any) -> dict[str, Any]:
    return {f.name: getattr(value, f.name) for f in fields(value)}


# ---------------------------------------------------------------- on the other side


def _serve(pipe: Any) -> None:
    """Answer until the pipe closes."""
    how = sandbox.enter()
    server: ServerCode | None = None
    while True:
        try:
            question = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        try:
            if server is None:
                config, parts, known, threads = unpack(question)
                torch.set_num_threads(threads)
                server, answer = _made(config, parts, known), pack(["ok", how])
            else:
                what, given = unpack(question)
                answer = pack(["ok", getattr(server, what)(**given)], what)
        except DpflbenchError as e:
            answer = pack(["error", {"ours": not isinstance(e, PluginError), "text": str(e)}])
        except BaseException as e:  # a stranger's code may raise anything, and the loop wants to know where
            answer = pack(["error", {"ours": False, "text": f"{type(e).__name__}: {e} ({place_of(e)})"}])
        with contextlib.suppress(OSError):
            pipe.send_bytes(answer)


def _made(config: dict[str, Any], parts: Sequence[tuple[str, str, str]], known: Mapping[str, Any]) -> "ServerCode":
    """The server code of a run, made here of what its plugins' hooks name."""
    found: dict[str, dict[str, Part]] = {kind: {} for kind in KINDS}
    for kind, name, module in parts:
        found[kind][name] = part_of(kind, name, module)
    problems: list[str] = []
    made = assemble(Normalised(Raw(config)), Catalogue(found), problems)
    if made is None:
        raise SuiteError(problems)
    layout = Layout(tuple(ParameterTensor(*tensor) for tensor in known["layout"]))
    mechanism, accountant = made.noise
    accountant = accountant.of(known["epsilon"], known["delta"])
    local = protecting(made.federation.local, made.frame.unit)
    own = {"mechanism": mechanism, "accountant": accountant, "local": local, "trust": made.frame.trust}
    setup = Setup(**{**known, **own, "layout": layout, "lr": LearningRate(*known["lr"])})
    return ServerCode(made.algorithm.selector, made.algorithm.aggregator, setup)


@dataclass(frozen=True, slots=True, eq=False)
class ServerCode:
    """The parts of a server, asked by name."""

    selector: Selector
    aggregator: Any
    setup: Setup

    def plan(self, round: int, used: Any, left: Any, losses: dict[str, Any], rng: Any) -> dict[str, Any]:
        """Return a plan as a mapping."""
        generator = np.random.default_rng()
        generator.bit_generator.state = rng
        plan = self.selector.plan(PlanView(self.setup, round, used, left, Losses(**losses)), generator)
        if not isinstance(plan, Plan):
            raise PluginError(f"plan returned {type(plan).__name__}; expected a Plan")
        asked = {name: getattr(plan, name) for name in ("probe", "adaptive")}
        plain = {name: None if value is None else asdict(value) for name, value in asked.items()}
        return {**_columns(plan), "notes": dict(plan.notes), **plain}

    def init(self) -> State:
        """Return the aggregator's first state."""
        return self.aggregator.init(self.setup) if isinstance(self.aggregator, RowAggregator) else None

    def weights(self, cohort: dict[str, Any]) -> Any:
        """Return the weights of a cohort."""
        return self.aggregator.weights(Cohort(**cohort))

    def aggregate(self, updates: dict[str, Any], state: State) -> Any:
        """Return a direction and the next state."""
        values, version = updates["values"], updates["values"]._version
        found = self.aggregator.aggregate(Updates(**updates), state)
        if values._version != version:
            raise PluginError("changes updates.values in place; return a new tensor")
        return found

    def effective_weights(self, updates: dict[str, Any], state: State) -> Any:
        """Return the weights that rows had in a direction."""
        return self.aggregator.effective_weights(Updates(**updates), state)


def place_of(error: BaseException) -> str:
    """File and line where code went wrong."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name}" if frames else "nowhere"
