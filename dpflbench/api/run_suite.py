"""A suite to records: what is missing is done, the same call again goes on where it stopped."""

import os
import platform
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import torch

from dpflbench.api.folders import ResultsFolder
from dpflbench.api.options import Stopped
from dpflbench.catalogue import Catalogue, load
from dpflbench.counterfactual import counterfactuals
from dpflbench.errors import DpflbenchError
from dpflbench.execution import executors
from dpflbench.execution.executors import Executor, devices_of, in_this_process, jobs_of
from dpflbench.execution.explain import stale
from dpflbench.execution.prepare import Place
from dpflbench.execution.processes import bury_sockets
from dpflbench.execution.progress import Display, Progress, bury
from dpflbench.execution.ray_cluster import on_ray
from dpflbench.execution.stopping import Stop
from dpflbench.execution.workers import Briefing, in_workers
from dpflbench.execution.worklist import Worklist, by_task
from dpflbench.federation.gradients import Kernels, library
from dpflbench.planning import Planned, device_of, plan_suite
from dpflbench.results.store import Store
from dpflbench.suite_schema import Suite

Shown = Callable[[Stop], AbstractContextManager[Display]]  # where progress is shown

OUTDATED = "{}: holds records of another version of dpflbench, which stay there; every run is repeated"
MOST = 5  # stale runs that are named one by one


def run_suite(
    suite: Suite,
    *,
    out: Path,
    root: Path | None,  # of data sets
    without: tuple[str, ...],
    device: str,
    threads: int,
    kernels: Kernels,
    jobs: str,
    jobs_per_gpu: int,
    ray: str | None,  # address of a cluster; None: this machine
    noise_key: bytes | None,
    isolated: bool,
    why: bool,
    shown: Shown,
    ready: Callable[[], None] = lambda: None,  # called when it is planned, before anything is printed
) -> ResultsFolder:
    """The results folder with all that was missing done; Stopped if somebody asked to stop."""
    if kernels == "native":
        library()  # one that cannot be made is said before anything else
    catalogue, store = load(without), Store(out)
    _one_suite(store, suite.name)
    planned = plan_suite(suite, catalogue, root, store.known)
    ready()
    where = Place(root=root, suite=suite.folder, device=device_of(device))
    place = replace(where, threads=threads, kernels=kernels, isolated=isolated)
    stop, at_once = Stop(), False
    devices = _devices(jobs, jobs_per_gpu, place)
    why = why or suite.report.why
    manifest = planned.manifest  # from here on something is written
    store.check_room(len(manifest.tuning) + len(manifest.cells) * (3 if why else 1))
    key, origin = store.noise_key(noise_key)
    place = replace(place, noise_key=key, noise_origin=origin)
    if ray is None:
        executor = _local(devices, place, store, catalogue, without)
    else:
        executor = on_ray(ray, planned.manifest.suite["resources"], place, catalogue, without)
    try:
        carry_out(planned, store, catalogue, executor, stop, shown)
        if planned.waits and not stop.requested:  # tuned by what is there now
            before, planned = planned.runs, plan_suite(suite, catalogue, root, store.known)
            after = {run: made for run, made in planned.runs.items() if run not in before}
            carry_out(Planned(planned.manifest, after), store, catalogue, executor, stop, shown)
        if why and not stop.requested:
            explain_table(planned, store, catalogue, executor, stop, shown)
    except KeyboardInterrupt:
        stop.signal, at_once = stop.signal or 2, True
    if stop.requested:
        raise Stopped(stop.signal, at_once)
    return ResultsFolder((store.root,), store.results(), catalogue, doubts=True)


def _one_suite(store: Store, name: str) -> None:
    """DpflbenchError if the folder has another suite: its table would be gone, and its records out of sight."""
    try:
        there = store.manifest().name
    except DpflbenchError:  # none yet, or one that nobody can read
        return
    if there != name:
        raise DpflbenchError(
            f"{store.root}: holds the results of suite '{there}'; give '{name}' a folder of its own by --out"
        )


def _name_stale(planned: Planned, store: Store, say: Callable[[str], None]) -> None:
    """Say which records a change has made stale, before their runs are done again."""
    named, changes = planned.manifest.titles, dict[str, list[str]]()
    for each in stale(planned.runs, store):
        changes.setdefault(each.reason.partition(": ")[2], []).append(named[each.run])
    for change, names in changes.items():
        more = f"; and {len(names) - MOST} more, which `--explain` names" if len(names) > MOST else ""
        say(f"stale, done again: {'; '.join(names[:MOST])}{more}: {change}")


def _devices(jobs: str, per_gpu: int, place: Place) -> list[str]:
    """The device of each run that is under way at a time on this machine."""
    gpus = torch.cuda.device_count()
    return devices_of(jobs_of(jobs, place.device, per_gpu, place.threads, gpus), place.device, gpus)


def _local(devices: list[str], place: Place, store: Store, catalogue: Catalogue, without: tuple[str, ...]) -> Executor:
    """This process for one run at a time on one device, workers otherwise."""
    if len(devices) == 1:
        return in_this_process(catalogue, replace(place, device=devices[0]))
    tasks = store.work("tasks") / f"{platform.node()}-{os.getpid()}"
    return in_workers(
        devices, Briefing(replace(place, tasks=tasks.absolute()), store.root.absolute(), without), catalogue
    )


def carry_out(
    planned: Planned,
    store: Store,
    catalogue: Catalogue,
    executor: Executor,
    stop: Stop,
    shown: Shown,
    titles: Mapping[str, str] | None = None,  # of runs that fill no cell
) -> None:
    """Do what is missing, showing how far it is."""
    outdated = store.outdated()
    store.write_manifest(planned.manifest)
    bury(store)
    bury_sockets()
    rounds = {run.id: int(run.config["federation"]["rounds"]) for run in planned.runs.values()}
    with shown(stop) as where:
        progress = Progress(planned.manifest, rounds, where, store)
        progress.titles |= titles or {}
        try:
            if outdated:
                progress.say(OUTDATED.format(store.root))
            if titles is None:
                _name_stale(planned, store, progress.say)
            work = Worklist(
                by_task(planned.runs, catalogue),
                store,
                progress.say,
                lambda record: progress.finished(record, reused=True),
            )
            executors.carry_out(work, executor, progress, stop)
        finally:
            progress.close()
            bury(store)


def explain_table(
    planned: Planned, store: Store, catalogue: Catalogue, executor: Executor, stop: Stop, shown: Shown
) -> None:
    """Do what is missing of the runs that explain the others."""
    links, runs = counterfactuals(store.results(), catalogue)
    store.write_counterfactuals(links)
    names = planned.manifest.titles
    titles = {
        run: f"{names[of]} without {what.replace('_', ' ')}" for of, each in links.items() for what, run in each.items()
    }
    carry_out(Planned(planned.manifest, runs), store, catalogue, executor, stop, shown, titles)
