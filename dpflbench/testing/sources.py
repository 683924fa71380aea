"""Checks of data sets and models: what is learnt, and from what."""

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dpflbench.errors import DataError, DpflbenchError
from dpflbench.federation.gradients import Engine, initial_theta
from dpflbench.federation.leftovers import ClientCode
from dpflbench.interfaces import Availability, Dataset, Examples, Model
from dpflbench.randomness import Streams
from dpflbench.tasks.models import check_module
from dpflbench.tasks.task import Shards
from dpflbench.testing.factories import named, obtain
from dpflbench.testing.rules import attempt, difference, leaves_nothing, needs_methods, no_global_draws, pickled, refuse

SHAPES: tuple[tuple[int, ...], ...] = ((10,), (1, 28, 28), (3, 32, 32))
OUTPUTS = 4
SEED = 6


def check_dataset(part: Any, who: str = "", root: Path | None = None) -> str:
    """Raise ConformanceError at the first broken rule; empty, or why the content could not be looked at on this
    machine.
    """
    who = named(part, "dataset", who)
    dataset = obtain(part, who)
    needs_methods(who, dataset, Dataset, {"availability": 1, "digest": 1, "load": 1})
    with tempfile.TemporaryDirectory() as empty:
        _availability(dataset, Path(empty), who)
        if any(Path(empty).iterdir()):
            refuse(
                who,
                "availability writes into the folder it reads",
                "an untouched folder",
                "only look; caches have their own place",
            )
    pickled(who, dataset)
    known = _availability(dataset, root, who)
    if not known.found:
        _says_what_is_missing(dataset, root, who)
        return f"its data is not on this machine: {known.detail}"
    digests = [attempt(who, "digest(root)", "a SHA-256", lambda: dataset.digest(root)) for _ in range(2)]
    if digests[0] != digests[1] or not isinstance(digests[0], str) or len(digests[0]) != 64:
        refuse(
            who,
            f"digest is {digests[0]!r:.80}, then {digests[1]!r:.80}",
            "the same 64 hexadecimal digits",
            "return SHA-256 over the content",
        )
    with no_global_draws(who, "load"):
        examples = attempt(who, "load(root)", "Examples", lambda: dataset.load(root))
    if not isinstance(examples, Examples):
        refuse(who, f"load returns {type(examples).__name__}", "dpflbench.interfaces.Examples", "return Examples(…)")
    for name in ("train", "test"):
        _examples(getattr(examples, f"x_{name}"), getattr(examples, f"y_{name}"), examples.n_classes, name, who)
    if examples.groups is not None and examples.groups.shape != examples.y_train.shape:
        refuse(
            who,
            f"groups has shape {tuple(examples.groups.shape)}",
            "one owner a training example",
            "return groups [M] or None",
        )
    return ""


def _availability(dataset: Any, root: Path | None, who: str) -> Availability:
    known = attempt(
        who, "availability(root)", "an Availability, also where nothing is there", lambda: dataset.availability(root)
    )
    if not isinstance(known, Availability):
        refuse(
            who,
            f"availability returns {type(known).__name__}",
            "dpflbench.interfaces.Availability",
            "return Availability(…)",
        )
    for name in ("licence", "get"):
        if not getattr(known, name):
            refuse(who, f"availability has no {name}", "a licence and a way to get the data", f"fill in {name}")
    return known


def _says_what_is_missing(dataset: Any, root: Path | None, who: str) -> None:
    try:
        dataset.load(root)
    except DataError:
        return
    except Exception as e:  # a stranger's code may raise anything
        refuse(
            who,
            f"load without data raises {type(e).__name__}",
            "DataError that names what is missing",
            "raise dpflbench.errors.DataError",
        )
    refuse(who, "availability says it is missing, load works", "the two to agree", "look in the same place")


def _examples(x: Any, y: Any, n_classes: int, part: str, who: str) -> None:
    if not isinstance(x, Tensor) or x.dtype not in (torch.float32, torch.uint8) or x.ndim < 2:
        refuse(
            who,
            f"x_{part} is {getattr(x, 'dtype', type(x).__name__)}",
            "float32 or uint8 [M, ...]",
            "convert it when loading",
        )
    wanted = torch.int64 if n_classes else torch.float32
    if not isinstance(y, Tensor) or y.dtype != wanted or y.shape != x.shape[:1] or not len(y):
        found = f"{y.dtype} {tuple(y.shape)}" if isinstance(y, Tensor) else type(y).__name__
        refuse(who, f"y_{part} is {found}", f"{wanted} ({len(x)},)", "one label or target an example")
    if n_classes and not 0 <= int(y.min()) <= int(y.max()) < n_classes:
        refuse(
            who,
            f"y_{part} ranges from {y.min()} to {y.max()}",
            f"labels 0 to {n_classes - 1}",
            "number the classes from 0",
        )
    if not bool(torch.isfinite(y).all()) or (x.is_floating_point() and not bool(torch.isfinite(x).all())):
        refuse(
            who,
            f"the {part} part holds non-finite numbers",
            "finite numbers",
            "refuse or clean damaged rows when loading",
        )


def check_model(part: Any, who: str = "") -> None:
    """Raise ConformanceError at the first broken rule; `part` is a model or a factory of one.

    Built for its `default_input` and `default_outputs` where it names them, else for the first of (10,), (1, 28, 28),
    (3, 32, 32).
    """
    who = named(part, "model", who)
    model = obtain(part, who)
    needs_methods(who, model, Model, {"build": 2})
    pickled(who, model)
    shape, outputs = _buildable(model, who), getattr(model, "default_outputs", OUTPUTS)
    module, again = (Streams(1).isolated("init", lambda: model.build(shape, outputs)) for _ in range(2))
    if not isinstance(module, nn.Module):
        refuse(who, f"build returns {type(module).__name__}", "a torch.nn.Module", "return the module")
    try:
        check_module(module)
    except DpflbenchError as e:
        refuse(who, str(e), "a module whose samples have gradients of their own", "replace that layer")
    if any(p.dtype != torch.float32 for p in module.parameters()):
        refuse(who, "has parameters that are not float32", "float32", "build it in the default type")
    if difference(initial_theta(module), initial_theta(again)):
        refuse(
            who,
            "two builds under one seed start from different parameters",
            "an initial model that the seed determines",
            "initialise by torch.nn.init, which draws from torch's global generator",
        )
    _outputs(model, module, shape, outputs, who)


def _buildable(model: Any, who: str) -> tuple[int, ...]:
    named_shape = getattr(model, "default_input", None)
    shapes = SHAPES if named_shape is None else (tuple(named_shape),)
    reasons = []
    for shape in shapes:
        try:
            Streams(1).isolated("init", partial(model.build, shape, OUTPUTS))
            return shape
        except Exception as e:  # a stranger's code may raise anything
            reasons.append(f"{shape}: {type(e).__name__}: {e}"[:100])
    refuse(
        who,
        f"builds for none of {', '.join(reasons)}",
        "a module for one of them",
        "name an input shape: default_input = (…)",
    )


def _outputs(model: Any, module: nn.Module, shape: tuple[int, ...], outputs: int, who: str) -> None:
    """Right shape, each row from its own sample, and per-sample gradients that add up to the gradient of the batch.

    The engine itself refuses a module in which samples see each other, here as in a run.
    """
    generator = torch.Generator().manual_seed(SEED)
    x, y = torch.randn(3, *shape, generator=generator), torch.randint(outputs, (3,), generator=generator)
    engine, theta = Engine(module, outputs if outputs > 1 else 0, 2), initial_theta(module)
    y = y if outputs > 1 else y.float()
    out = attempt(
        who,
        "the module",
        f"outputs for inputs [3, {', '.join(map(str, shape))}]",
        lambda: engine.predict(theta, None, x),
    )
    if out.shape != (3, outputs) or not bool(torch.isfinite(out).all()):
        refuse(
            who,
            f"the module returns {tuple(out.shape)} or non-finite numbers for 3 inputs",
            f"finite outputs (3, {outputs})",
            "end with n_outputs outputs and no softmax",
        )
    losses = attempt(who, "the loss", "a loss a sample", lambda: engine.losses(theta, None, x, y))
    if losses.shape != (3,):
        refuse(who, f"losses have shape {tuple(losses.shape)}", "(3,)", "return one row of outputs a sample")
    _forgets(model, engine, theta, x, y, who)
    _gradients(engine, module, x, y, who)


def _forgets(model: Any, engine: Engine, theta: Tensor, seen: Tensor, y: Tensor, who: str) -> None:
    """Nothing of x survives a pass through the module, by itself or one sample at a time as in a run."""

    def call(seed: int) -> Tensor:
        x = torch.randn(seen.shape, generator=torch.Generator().manual_seed(SEED + seed))  # first those seen already
        with torch.no_grad():
            attempt(who, "the module", f"outputs for inputs {tuple(x.shape)}", partial(engine.module, x))
        _summed(engine, theta, x, y, who)
        return x.clone()

    leaves_nothing(who, ClientCode.of(model, built=[engine.module]), call, (engine, seen))


def _summed(engine: Engine, theta: Tensor, x: Tensor, y: Tensor, who: str) -> Tensor:
    """The sum of the samples' gradients."""
    shards = Shards(x, y, np.array([0, len(x)]))
    return attempt(
        who,
        "the module under torch.func",
        "a gradient a sample",
        lambda: engine.clipped_sums(theta, torch.zeros(1, 0), shards, np.array([0]), None).theta[0],
    )


def _gradients(engine: Engine, module: nn.Module, x: Tensor, y: Tensor, who: str) -> None:
    found = _summed(engine, initial_theta(module), x, y, who)
    out = module(x)
    loss = (
        nn.functional.cross_entropy(out, y, reduction="sum")
        if y.dtype == torch.int64
        else (out[:, 0] - y).square().sum()
    )
    wanted = [p for p in module.parameters() if p.requires_grad]
    by = torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)
    whole = torch.cat([g.reshape(-1) for g in by]).double()
    if not float((found - whole).norm()) <= 1e-2 * float(whole.norm()) + 1e-6:
        refuse(
            who,
            "the gradients of its samples do not add up to the gradient of their batch",
            "samples that stand alone",
            "use no statistics over the batch, and no state between batches",
        )
