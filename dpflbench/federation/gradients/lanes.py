"""Stacks: runs of convolutions, group norms, ReLUs and 2×2 pools of a proved graph, computed by `lanes.c`.

A library of convolutions is made for many channels; models here have one to sixteen, and their samples' gradients are
wanted one by one. With a sample in each lane of a vector both come at the machine's speed (`lanes.c`). Its source is
compiled when it is first asked for, by the C compiler of the machine, into a folder that is gone once it is loaded:
nothing to build beforehand, and nothing lies about that somebody could exchange.

The proof of `summation.py` speaks of the float32 numbers a sample's gradient consists of, whatever they are, as long as
they are that sample's alone: lanes never meet, so they are. Last bits are other ones than torch's, so a record says
which way was taken (`chosen`).
"""

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn

from dpflbench.errors import DpflbenchError
from dpflbench.federation.gradients.pooling import Pool

Kernels = Literal["torch", "native"]
SOURCE = "74d76a1e59c89cccb4415e8ac50ba00e8f7c67c755dcceedd89351340f684f8f"  # of lanes.c; so run ids cover it
# fast math of a $CC would change how torch rounds, in the whole process
FLAGS = ["-O3", "-march=native", "-fno-fast-math", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC", "-s"]
KINDS: dict[type[nn.Module], int] = {nn.Conv2d: 0, nn.GroupNorm: 1, Pool: 2, nn.ReLU: 3}
KERNELS = (1, 3, 5)  # widths of square kernels
FEW = 128  # inputs times outputs: with more channels torch's convolutions are as fast
Forward = Callable[[Tensor], Tensor]
Own = tuple[Sequence[int], Callable[[nn.Module, str], Tensor]]  # samples of each client; its parameters [clients, ...]
Note = Callable[[nn.Module, str, Tensor], None]  # takes a layer, "weight" or "bias", the gradients by it as rows [B, d]


class Layer(ctypes.Structure):
    """As `Layer` of lanes.c."""

    _fields_ = (
        *[(name, ctypes.c_int32) for name in ("kind", "c", "h", "w", "oc", "oh", "ow")],
        *[(name, ctypes.c_int32) for name in ("k", "ph", "pw", "groups", "relu")],
        ("eps", ctypes.c_float),
        *[(name, ctypes.c_void_p) for name in ("weight", "bias", "by_weight", "by_bias")],
        ("kept", ctypes.c_int64),
    )


@dataclass(frozen=True)
class Library:
    """The compiled kernels."""

    functions: ctypes.CDLL
    lanes: int
    digest: str  # of their machine code: equal ones compute equal bits

    def call(self, name: str, layers: Any, x: int, samples: int, out: int | None, kept: int, stride: int) -> None:
        """Run the layers over samples at those addresses, there or back."""
        places = ctypes.c_void_p(x), ctypes.c_int64(samples), ctypes.c_void_p(out), ctypes.c_void_p(kept)
        if getattr(self.functions, name)(layers, len(layers), *places, ctypes.c_int64(stride)):
            raise MemoryError("no memory for a block of samples")


_chosen: Kernels = "torch"  # of the process, as torch's number of threads is


@contextmanager
def kernels(which: Kernels) -> Iterator[None]:
    """Engines made inside compute that way."""
    global _chosen
    before, _chosen = _chosen, which
    try:
        yield
    finally:
        _chosen = before


def chosen() -> str:
    """Which kernels compute, as a record says it: `torch`, or `native` and the digest of their machine code, if they
    can be had.
    """
    if _chosen == "torch":
        return "torch"
    try:
        return f"native {library().digest[:12]}"
    except DpflbenchError:
        return "native"  # the run says why when it needs them


@cache
def library(*flags: str) -> Library:
    """The kernels, compiled once a process; an error that says what is missing."""
    compiler = compiler_of()
    if not compiler:
        raise DpflbenchError(
            "kernels: native needs a C compiler, and there is none; install one (gcc, clang) or set $CC"
        )
    source = Path(__file__).with_name("lanes.c")
    if hashlib.sha256(source.read_bytes()).hexdigest() != SOURCE:
        raise DpflbenchError(f"kernels: native: {source.name} is not the file that belongs to this version")
    try:
        return _compiled([*compiler, *FLAGS, *flags], source.resolve())
    except OSError as e:
        what = str(e).splitlines()[0]
        raise DpflbenchError(f"kernels: native: {compiler[0]} made nothing of lanes.c that runs: {what}") from None


def _compiled(command: list[str], source: Path) -> Library:
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "lanes.so"  # named from inside: some linkers write the name down, and digests must agree
        command = [*command, "-o", made.name, str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        if done.returncode:
            said = next(iter(done.stderr.strip().splitlines()), f"exit code {done.returncode}")
            raise DpflbenchError(f"kernels: native: {command[0]} does not compile lanes.c: {said}")
        functions, digest = ctypes.CDLL(str(made)), hashlib.sha256(made.read_bytes()).hexdigest()
    return Library(functions, int(functions.lanes()), digest)


def compiler_of() -> list[str]:
    """The C compiler's command: $CC if it is set, else the one Python was made with, cc, gcc or clang; empty if there
    is none.
    """
    if given := os.environ.get("CC"):
        try:
            command = shlex.split(given)
        except ValueError:
            command = []
        if not command or not shutil.which(command[0]):
            raise DpflbenchError(f"kernels: native: $CC is {given!r}, which is no command; set it to a C compiler")
        return command
    named = [sysconfig.get_config_var("CC"), "cc", "gcc", "clang"]
    commands = [shlex.split(name) for name in named if name]
    return next((command for command in commands if command and shutil.which(command[0])), [])


class Stack:
    """Layers one after the other in a graph, which stay where they are: the first does the work of all, and those
    behind it pass on what they are given.
    """

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        self.layers = layers
        self._taken = False

    def install(self, run: Callable[["Passage", Tensor], Tensor], own: Callable[[], Own | None]) -> None:
        """From now on the layers run by `run` where there is a passage, else as they did; `own`: the parameters each
        client's samples meet, None: all meet those of the layers.
        """
        for layer in self.layers:
            usual, way = layer.forward, self._first if layer is self.layers[0] else self._behind
            layer.forward = partial(way, usual, run, own)

    def _first(
        self, usual: Forward, run: Callable[["Passage", Tensor], Tensor], own: Callable[[], Own | None], x: Tensor
    ) -> Tensor:
        passage = self._passage(x, own())
        self._taken = passage is not None
        return usual(x) if passage is None else run(passage, x)

    def _behind(self, usual: Forward, _: object, __: object, x: Tensor) -> Tensor:
        return x if self._taken else usual(x)

    def _passage(self, x: Tensor, own: Own | None) -> "Passage | None":
        """How x goes through the kernels; None if it must go another way."""
        if x.device.type != "cpu" or x.dtype != torch.float32 or not len(x):
            return None
        shapes = _shapes(self.layers, tuple(x.shape[1:]))
        return Passage(self.layers, shapes, own or ([len(x)], shared)) if shapes else None


class Passage:
    """The layers as lanes.c is told of them, for inputs of one shape, with their parameters as they are now: one call
    for all samples, or one for each client with parameters of its own.
    """

    def __init__(self, layers: Sequence[nn.Module], shapes: list[tuple[int, int, int]], own: Own) -> None:
        self.layers, self.shapes, (self.sizes, parameter), self.library = layers, shapes, own, library()
        self.told: Any = (Layer * len(layers))()
        self.parameters: list[
            tuple[int, str, Tensor]
        ] = []  # layer, name, tensors [calls, ...] of which C has addresses
        kept = 0
        for i, (told, layer, (before, after)) in enumerate(zip(self.told, layers, pairwise(shapes), strict=True)):
            told.kind, told.kept = KINDS[type(layer)], kept
            (told.c, told.h, told.w), (told.oc, told.oh, told.ow) = before, after
            size = told.c * told.h * told.w
            if isinstance(layer, nn.Conv2d):
                told.k, (told.ph, told.pw) = layer.kernel_size[0], _padding(layer)
                size = told.c * (told.h + 2 * told.ph) * (told.w + 2 * told.pw)
            elif isinstance(layer, nn.GroupNorm):
                told.groups, told.eps, size = layer.num_groups, layer.eps, size + layer.num_groups
            elif isinstance(layer, Pool):
                told.relu = layer.relu
            for name in ("weight", "bias"):
                if getattr(layer, name, None) is not None:
                    self.parameters.append((i, name, parameter(layer, name)))
            kept += size
        self.size = kept

    def forward(self, x: Tensor, keep: bool) -> tuple[Tensor, Tensor]:
        """What comes out, and what the way back needs."""
        x, lanes = x.detach().contiguous(), self.library.lanes
        blocks = sum(-(-size // lanes) for size in self.sizes) if keep else 1
        kept, out = x.new_empty(blocks * self.size * lanes), x.new_empty(len(x), *self.shapes[-1])
        for at, size, block in self._calls(keep):
            self.library.call(
                "forward", self.told, _at(x, at), size, _at(out, at), _at(kept, block), self.size if keep else 0
            )
        return out, kept

    def backward(self, g: Tensor, kept: Tensor, wanted: bool, note: Note) -> Tensor | None:
        """Note the gradients by the parameters; the gradient by x if it is wanted."""
        g = g.contiguous()
        rows = [g.new_empty(len(g), own[0].numel()) for *_, own in self.parameters]
        by_x = g.new_empty(len(g), *self.shapes[0]) if wanted else None
        for at, size, block in self._calls(True):
            for (layer, name, _), row in zip(self.parameters, rows, strict=True):
                setattr(self.told[layer], f"by_{name}", _at(row, at))
            back = None if by_x is None else _at(by_x, at)
            self.library.call("backward", self.told, _at(g, at), size, back, _at(kept, block), self.size)
        for (layer, name, _), row in reversed([*zip(self.parameters, rows, strict=True)]):
            note(self.layers[layer], name, row)
        return by_x

    def _calls(self, keep: bool) -> Iterator[tuple[int, int, int]]:
        """First sample and number of samples of every call, and where it keeps what it keeps, its parameters told."""
        at = block = 0
        for i, size in enumerate(self.sizes):
            for layer, name, own in self.parameters:
                setattr(self.told[layer], name, _at(own, i))
            if size:
                yield at, size, block * self.size * self.library.lanes
            at, block = at + size, block + (-(-size // self.library.lanes) if keep else 0)


def shared(layer: nn.Module, name: str) -> Tensor:
    """A parameter that all samples meet [1, ...]."""
    parameter: Tensor = getattr(layer, name)
    return parameter.detach().contiguous()[None]


def _at(tensor: Tensor, row: int) -> int:
    """The address of a row."""
    return tensor.data_ptr() + row * tensor.stride(0) * tensor.element_size()


class Tapped(torch.autograd.Function):
    """A stack whose backward pass notes the gradients by its parameters, sample by sample."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, anchor: Tensor, passage: Passage, note: Note) -> Tensor:
        """What the stack makes of x; anchor is there to be asked for a gradient where x is not."""
        out, kept = passage.forward(x, keep=True)
        ctx.passage, ctx.note = passage, note
        ctx.save_for_backward(kept)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, None, None, None]:
        """The gradient by x."""
        return ctx.passage.backward(g, *ctx.saved_tensors, ctx.needs_input_grad[0], ctx.note), None, None, None


def stacks(graph: nn.Module) -> list[Stack]:
    """The runs of layers in a graph that lanes.c knows and that begin with a convolution."""
    if not isinstance(graph, fx.GraphModule):
        return []
    runs: list[list[fx.Node]] = []
    calls = [node for node in graph.graph.nodes if node.op == "call_module"]
    for node in calls:
        layer, once = graph.get_submodule(str(node.target)), sum(n.target == node.target for n in calls) == 1
        if not (type(layer) is nn.Identity or (once and _known(layer))):
            continue
        if runs and node.args == (runs[-1][-1],) and len(runs[-1][-1].users) == 1:
            runs[-1].append(node)
        elif type(layer) is nn.Conv2d:
            runs.append([node])
    found = [[graph.get_submodule(str(node.target)) for node in run] for run in runs]
    return [Stack([layer for layer in layers if type(layer) is not nn.Identity]) for layers in found]


def install(graph: nn.Module) -> None:
    """Let a graph that is only asked for outputs run its stacks by the kernels; in place."""
    for stack in stacks(graph):
        stack.install(lambda passage, x: passage.forward(x, keep=False)[0], lambda: None)


def _known(layer: nn.Module) -> bool:
    """Whether lanes.c has such a layer."""
    if type(layer) is nn.Conv2d:
        if not (isinstance(layer.padding, str) or (isinstance(layer.padding, tuple) and len(layer.padding) == 2)):
            return False
        square = layer.kernel_size[0] == layer.kernel_size[1] and layer.kernel_size[0] in KERNELS
        plain = layer.groups == 1 and layer.stride == (1, 1) and layer.dilation == (1, 1)
        zeros = layer.padding_mode == "zeros" and max(_padding(layer)) < layer.kernel_size[0]
        few = layer.weight.shape[0] * layer.weight.shape[1] <= FEW
        return few and square and plain and zeros
    whole = type(layer) is not nn.GroupNorm or (layer.weight is not None and layer.bias is not None)
    return type(layer) in KINDS and whole


def _padding(layer: nn.Conv2d) -> tuple[int, int]:
    """Zeros above and left of the map, and as many below and right."""
    if isinstance(layer.padding, str):  # "same" or "valid"; of an odd kernel
        return (layer.kernel_size[0] // 2, layer.kernel_size[1] // 2) if layer.padding == "same" else (0, 0)
    return layer.padding[0], layer.padding[1]


def _shapes(layers: Sequence[nn.Module], first: tuple[int, ...]) -> list[tuple[int, int, int]] | None:
    """Channels, height and width before, between and behind the layers; None if a pool would leave something over, or
    the parameters are others than the layers say.
    """
    parameters = [p for layer in layers for p in layer.parameters()]
    if len(first) != 3 or any(p.dtype != torch.float32 or p.device.type != "cpu" for p in parameters):
        return None
    c, h, w = first
    shapes = [(c, h, w)]
    for layer in layers:
        if isinstance(layer, nn.Conv2d):
            (ph, pw), k = _padding(layer), layer.kernel_size[0]
            if layer.weight.shape != (layer.out_channels, c, k, k):
                return None
            c, h, w = layer.out_channels, h + 2 * ph - k + 1, w + 2 * pw - k + 1
        elif isinstance(layer, Pool):
            if h % 2 or w % 2:
                return None
            h, w = h // 2, w // 2
        shapes.append((c, h, w))
    return shapes if min(h, w) > 0 else None
