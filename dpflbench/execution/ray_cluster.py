"""Runs on a Ray cluster, for those who outgrow one machine. Ray schedules; this process claims runs and keeps records.

Data is made here and shipped through the object store, once a node: other nodes need no data files, only the same
packages. A desk (one actor beside this process) passes on reports, checkpoints and the wish to stop, so no file system
has to be shared either. When a node is lost Ray starts its runs again elsewhere, and they go on from their last
checkpoint.
"""

import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dpflbench.catalogue import Catalogue, load
from dpflbench.errors import DpflbenchError
from dpflbench.execution.attempt import Interrupted, Place, assembled, assembly_of, execute
from dpflbench.execution.executors import Executor, tick_of
from dpflbench.execution.outcome import bare_record, measured
from dpflbench.execution.prepare import task_key, task_of
from dpflbench.execution.progress import Progress, Tick
from dpflbench.execution.sharing import from_parts, to_parts
from dpflbench.execution.stopping import Stop
from dpflbench.execution.workers import check_sources
from dpflbench.execution.worklist import Worklist
from dpflbench.federation.simulate import Clock, State
from dpflbench.planning import Run
from dpflbench.results.record import Record

RETRIES = 3  # of a run whose node or process is lost
AHEAD = 2  # runs submitted for each that can run at once: nobody waits for the next one
REPORT, POLL = 0.5, 0.5  # seconds between reports of a run, and between looks at the desk


class Desk:
    """Passes messages between runs and the process that started them. An actor: its methods are called from
    everywhere.
    """

    def __init__(self) -> None:
        self.stopping = False
        self.ticks: dict[str, tuple[Tick, str]] = {}
        self.lines: list[str] = []
        self.checkpoints: dict[str, bytes] = {}
        self.fresh: set[str] = set()  # runs whose checkpoint has not been fetched

    def report(self, tick: Tick, where: str) -> bool:
        """A round was played; whether to stop."""
        self.ticks[tick.run] = (tick, where)
        return self.stopping

    def say(self, line: str) -> None:
        """Something to show."""
        self.lines.append(line)

    def load(self, run: str) -> bytes | None:
        """The last checkpoint of a run."""
        return self.checkpoints.get(run)

    def save(self, run: str, checkpoint: bytes) -> None:
        """Keep a checkpoint."""
        self.checkpoints[run] = checkpoint
        self.fresh.add(run)

    def offer(self, run: str, checkpoint: bytes | None) -> None:
        """A checkpoint from disk, or none: what a run that is about to start may begin with."""
        if checkpoint is None:
            self.checkpoints.pop(run, None)
        else:
            self.checkpoints[run] = checkpoint

    def news(self, stop: bool) -> tuple[dict[str, tuple[Tick, str]], list[str], dict[str, bytes]]:
        """Everything since the last time."""
        self.stopping = stop
        found = self.ticks, self.lines, {run: self.checkpoints[run] for run in self.fresh if run in self.checkpoints}
        self.ticks, self.lines, self.fresh = {}, [], set()
        return found


@dataclass(slots=True)
class AtDesk:
    """The watch over a run on some node."""

    run: Run
    desk: Any
    node: str
    reported: float = 0.0

    def load(self) -> bytes | None:
        """From the desk."""
        import ray

        return ray.get(self.desk.load.remote(self.run.id))  # type: ignore[no-any-return]

    def save(self, checkpoint: bytes) -> None:
        """To the desk, which has it when this returns."""
        import ray

        ray.get(self.desk.save.remote(self.run.id, checkpoint))

    def after(self, state: State) -> bool:
        """Reported now and then, and stopped when the desk says so."""
        import ray

        if time.monotonic() - self.reported < REPORT:
            return False
        self.reported = time.monotonic()
        return bool(ray.get(self.desk.report.remote(tick_of(self.run, state), self.node)))

    def say(self, line: str) -> None:
        """To the desk."""
        self.desk.say.remote(line)


def remote_run(run: Run, parts: dict[str, Any], place: Place, without: tuple[str, ...], desk: Any) -> tuple[str, Any]:
    """One run on some node: its record, or that it was stopped or refused."""
    import platform

    import ray
    import torch

    catalogue, node = load(without), f"{platform.node()} {ray.get_runtime_context().get_node_id()[:6]}"
    try:
        run = assembled(run, catalogue)
        check_sources(run, catalogue)
        if place.device == "cuda" and not torch.cuda.is_available():
            raise DpflbenchError(f"node {node}: the suite asks for a GPU (resources.gpu), but torch sees none there")
        return "record", execute(run, catalogue, place, AtDesk(run, desk, node), from_parts(parts, place.device))
    except Interrupted:
        return "stopped", None
    except DpflbenchError as e:
        return "refused", str(e)


@dataclass(slots=True, kw_only=True)
class Cluster:
    """What is under way on a Ray cluster."""

    resources: Mapping[str, float]
    place: Place
    catalogue: Catalogue
    without: tuple[str, ...]
    work: Worklist
    progress: Progress
    stop: Stop
    desk: Any = None
    submit: Any = None
    pending: dict[Any, Run] = field(default_factory=dict)
    tasks: dict[str, Any] = field(default_factory=dict)  # object refs by task
    polled: float = 0.0
    warned: bool = False

    def records(self) -> Generator[Record, None, None]:
        """Records as they come, until nothing is left to do or somebody asked to stop."""
        import ray

        self._open(ray)
        while self.pending or (self.work.open and not self.stop.requested):
            while not self.stop.requested and len(self.pending) < self._room(ray):
                run = self.work.claim()
                if run is None:
                    break
                self._start(ray, run)
            if self.pending:
                done, _ = ray.wait(list(self.pending), timeout=POLL)
                for ref in done:
                    yield from self._finish(ray, ref)
            else:
                time.sleep(POLL)
            self._news(ray)

    def _open(self, ray: Any) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(node_id=ray.get_runtime_context().get_node_id(), soft=False)
        self.desk = ray.remote(num_cpus=0, scheduling_strategy=here)(Desk).remote()
        environment = {
            name: str(self.place.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        }
        self.submit = ray.remote(
            num_cpus=self.resources["cpu"],
            num_gpus=self.resources["gpu"],
            max_retries=RETRIES,
            runtime_env={"env_vars": environment},
        )(remote_run)

    def _room(self, ray: Any) -> int:
        """How many runs to have under way: enough that the cluster never waits, as it is at this moment."""
        there = ray.cluster_resources()
        fits = [
            int(there.get(name, 0) / need)
            for name, need in (("CPU", self.resources["cpu"]), ("GPU", self.resources["gpu"]))
            if need
        ]
        room = AHEAD * min(fits, default=1)
        if not room and not self.warned:
            self.warned = True
            self.progress.say(
                f"the cluster has no room for a run that asks for {dict(self.resources)}; waiting for nodes to join"
            )
        return max(1, room)

    def _start(self, ray: Any, run: Run) -> None:
        assembly = assembly_of(run, self.catalogue)
        key = task_key(assembly)
        if key not in self.tasks:
            parts = to_parts(task_of(assembly, replace(self.place, device="cpu", tasks=None)))
            self.tasks[key] = ray.put(
                {name: part.numpy() if hasattr(part, "numpy") else part for name, part in parts.items()}
            )
        self._forget_tasks(key)
        self.desk.offer.remote(run.id, self.work.load(run.id))
        there = replace(self.place, root=None, device="cuda" if self.resources["gpu"] else "cpu")
        self.pending[self.submit.remote(run, self.tasks[key], there, self.without, self.desk)] = run
        self.progress.started(run.id, "queued")

    def _forget_tasks(self, key: str) -> None:
        """Let go of data that no run under way needs; runs that share some follow each other."""
        needed = {key, *(task_key(assembly_of(run, self.catalogue)) for run in self.pending.values())}
        self.tasks = {name: ref for name, ref in self.tasks.items() if name in needed}

    def _finish(self, ray: Any, ref: Any) -> Generator[Record, None, None]:
        run = self.pending.pop(ref)
        try:
            kind, content = ray.get(ref)
        except ray.exceptions.RayError as e:
            reason = f"lost by the cluster after {1 + RETRIES} attempts: {_first_line(e)}"
            assembly = assembly_of(run, self.catalogue)
            yield bare_record(run, assembly, "failed", reason, measured(Clock(), self.place.device, assembly))
            return
        if kind == "record":
            self.desk.offer.remote(run.id, None)
            yield content
        elif kind == "refused":
            raise DpflbenchError(content)
        else:
            self._news(ray, always=True)
            self.progress.stopped(run.id)
            self.work.give_back(run)

    def _news(self, ray: Any, always: bool = False) -> None:
        """What the desk has heard of."""
        if always or time.monotonic() - self.polled >= POLL:
            self.polled = time.monotonic()
            ticks, lines, checkpoints = ray.get(self.desk.news.remote(self.stop.requested))
            for tick, where in ticks.values():
                self.progress.tick(tick, where)
            for line in lines:
                self.progress.say(line)
            under_way = {run.id for run in self.pending.values()}
            for run, checkpoint in checkpoints.items():
                if run in under_way or always:
                    self.work.save(run, checkpoint)
        self.progress.poll()


def on_ray(
    address: str, resources: Mapping[str, float], place: Place, catalogue: Catalogue, without: tuple[str, ...]
) -> Executor:
    """As many runs at a time as the cluster has room for."""
    try:
        import ray
    except ImportError:
        raise DpflbenchError("--executor ray: Ray is not installed; pip install 'dpflbench[ray]'") from None

    def executor(work: Worklist, progress: Progress, stop: Stop) -> Generator[Record, None, None]:
        connect(ray, address)
        try:
            cluster = Cluster(
                resources=resources,
                place=place,
                catalogue=catalogue,
                without=without,
                work=work,
                progress=progress,
                stop=stop,
            )
            yield from cluster.records()
        except (
            ray.exceptions.RayError
        ) as e:  # not a run's node, which Ray replaces, but what holds the cluster together
            raise DpflbenchError(
                f"--address {address}: the cluster is lost ({_first_line(e)}); what is done is kept, run again"
            ) from None
        finally:
            ray.shutdown()

    return executor


def connect(ray: Any, address: str) -> None:
    """Join the cluster at an address; DpflbenchError if there is none."""
    if address.startswith("ray://"):
        raise DpflbenchError(
            f"--address {address}: Ray's client protocol is not served; run on a node of the cluster with "
            "--address auto"
        )
    try:
        ray.init(address=address, log_to_driver=False, logging_level="WARNING", ignore_reinit_error=True)
    except (ConnectionError, ValueError, RuntimeError) as e:
        raise DpflbenchError(
            f"--address {address}: no Ray cluster to join ({_first_line(e)}); start one by `ray start --head`"
        ) from None


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0]}" if str(error) else type(error).__name__
