"""Row by row: a proof that no sample of a batch sees another, read off the module's own graph.

Per-sample clipping bounds what one example can do only if its batch mates' gradients do not move with it. A few batches
that come out right prove nothing: `if x.max() > 1: x = x / 255` passes on standard normal samples, centring above eight
rows on five. So the forward is traced by torch.fx, which fails on whatever branches on values or sizes, and every node
must be a layer or function known to keep rows apart, on operands whose first axis is the batch. What is proved is then
what runs: the graph takes the module's place. Anything else goes through torch.func, one sample at a time.
"""

import operator
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from dpflbench.federation.gradients.pooling import Pool, fuse_pools
from dpflbench.tasks.models import layer_name

BATCHES = (2, 3)  # sizes at which shapes are followed; what holds at both does not depend on the size
Rule = Callable[[Any, tuple[Any, ...], dict[str, Any], Tensor], bool]  # node's target, arguments, keywords, result


def _same_rank(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> bool:
    """Element by element, without a broadcast that could turn another axis into the batch; not in place."""
    given = (*args, *kwargs.values())
    return all(a.ndim == out.ndim for a in given if isinstance(a, Tensor)) and not any(a is True for a in given)


def _axis_after(name: str, default: int | None = None) -> Rule:
    """An operation over axes that must not contain the batch."""

    def rule(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> bool:
        axes = args[1] if len(args) > 1 else kwargs.get(name, default)
        given = axes if isinstance(axes, tuple | list) else (axes,)
        rank = (args[0][0] if isinstance(args[0], tuple | list) else args[0]).ndim
        return all(isinstance(a, int) and a % rank > 0 for a in given)

    return rule


def _reshaped(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> bool:
    """As many numbers a row as before: in reading order they are the same row's."""
    return bool(out.shape[1:].numel() == args[0].shape[1:].numel())


def _maps(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> bool:
    """Images [B, C, H, W]; without the batch, [C, H, W] would be taken for one."""
    return bool(args[0].ndim == 4)


def _two_axes(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> bool:
    return bool(args[0].ndim > 1)


def _more_axes_than_normalised(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> bool:
    return bool(args[0].ndim > len(layer.normalized_shape))


def _unbounded(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> bool:
    """A bound on norms would rewrite the table by what the batch looks up."""
    return layer.max_norm is None


def _own_axis(name: str) -> Rule:
    """A layer with an axis of its own, which must not be the batch."""
    return lambda layer, args, kwargs, out: getattr(layer, name) is not None and getattr(layer, name) % args[0].ndim > 0


LAYERS: dict[type[nn.Module], Rule] = {
    **dict.fromkeys((nn.Identity, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.GELU, nn.SiLU), _same_rank),
    **dict.fromkeys((nn.Mish, nn.Softplus, nn.Tanh, nn.Sigmoid, nn.Hardtanh), _same_rank),
    nn.Dropout: _same_rank,  # at a rate of 0: `check_module` refuses others
    **dict.fromkeys((nn.Conv2d, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d, Pool), _maps),
    nn.Linear: _two_axes,
    nn.GroupNorm: _two_axes,
    nn.LayerNorm: _more_axes_than_normalised,
    nn.Embedding: _unbounded,
    nn.Flatten: _own_axis("start_dim"),
    nn.Unflatten: _own_axis("dim"),
    nn.Softmax: _own_axis("dim"),
    nn.LogSoftmax: _own_axis("dim"),
}
FUNCTIONS: dict[Any, Rule] = {
    **dict.fromkeys((operator.add, operator.sub, operator.mul, operator.truediv, operator.neg), _same_rank),
    **dict.fromkeys((torch.add, torch.sub, torch.mul, torch.div, torch.relu, torch.tanh, torch.sigmoid), _same_rank),
    **dict.fromkeys((functional.relu, functional.leaky_relu, functional.elu, functional.gelu), _same_rank),
    **dict.fromkeys((functional.silu, functional.softplus, functional.tanh, functional.sigmoid), _same_rank),
    **dict.fromkeys((functional.avg_pool2d, functional.adaptive_avg_pool2d), _maps),
    torch.flatten: _axis_after("start_dim", 0),
    torch.cat: _axis_after("dim", 0),
    torch.mean: _axis_after("dim"),
    torch.sum: _axis_after("dim"),
}
METHODS: dict[str, Rule] = {
    **dict.fromkeys(("relu", "tanh", "sigmoid", "add", "sub", "mul", "div"), _same_rank),
    **dict.fromkeys(("view", "reshape"), _reshaped),
    "flatten": _axis_after("start_dim", 0),
    "mean": _axis_after("dim"),
    "sum": _axis_after("dim"),
}


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return type(m) in LAYERS or (type(m).__module__.startswith("torch.nn") and type(m) is not nn.Sequential)


class _Reader(fx.Interpreter):
    """Follows shapes through the graph and raises `_Unproved` at the first node without a rule."""

    def __init__(self, module: fx.GraphModule, batch: int) -> None:
        super().__init__(module)
        self.batch = batch

    def run_node(self, n: fx.Node) -> Any:
        out = super().run_node(n)
        if n.op in ("placeholder", "output"):
            return out
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        if _is_size(n, args):
            return out
        target: Any = self.fetch_attr(str(n.target)) if n.op == "call_module" else n.target
        rules: dict[str, dict[Any, Rule]] = {"call_module": LAYERS, "call_function": FUNCTIONS, "call_method": METHODS}
        rule = rules.get(n.op, {}).get(type(target) if n.op == "call_module" else target)
        sizes = [a for a in n.all_input_nodes if not isinstance(self.env[a], Tensor)]
        rows = isinstance(out, Tensor) and out.ndim > 0 and out.shape[0] == self.batch
        if rule is None or not rows or (sizes and rule is not _reshaped) or not rule(target, args, kwargs, out):
            raise _Unproved(_reason(n, target))
        return out


class _Unproved(Exception):
    """What could not be shown."""


def _is_size(n: fx.Node, args: tuple[Any, ...]) -> bool:
    """x.size(…), x.shape, x.shape[i]: numbers that only a reshape may use."""
    if n.op == "call_method":
        return n.target == "size"
    if n.op != "call_function":
        return False
    return (n.target is getattr and args[1] == "shape") or (
        n.target is operator.getitem and isinstance(args[0], torch.Size)
    )


def _reason(n: fx.Node, target: Any) -> str:
    if n.op == "get_attr":
        return f"{n.target} is used outside its layer"
    what = layer_name(str(n.target), target) if n.op == "call_module" else None
    return f"{what or getattr(target, '__name__', target) + ' in its forward'} is not known to keep samples apart"


def straight(module: nn.Module, like: Tensor) -> tuple[nn.Module | None, str]:
    """The module, or its graph, in which rows are apart for inputs shaped like those; or None, and why not."""
    module = deepcopy(module)
    for name, part in module.named_modules():
        if hasattr(part, "inplace"):
            part.inplace = False  # would overwrite what a tap has noted
        if own := _not_of_its_class(part):
            return None, f"{layer_name(name, part)} has {own} of its own"
    one_layer = type(module) in LAYERS
    try:
        traced = _traced(nn.Sequential(module) if one_layer else module)
        away = deepcopy(traced).to("meta")
        for batch in BATCHES:
            x = torch.empty(batch, *like.shape[1:], dtype=like.dtype, device="meta")
            _Reader(away, batch).run(x)
    except _Unproved as e:
        return None, first_line(e)
    except Exception as e:  # a stranger's forward may raise anything where it is traced
        return None, f"its forward cannot be traced: {first_line(e)}"
    return (module if one_layer else traced), ""


def _not_of_its_class(part: nn.Module) -> str:
    """What makes a part do otherwise than its class says; empty if nothing does."""
    if any((part._forward_hooks, part._forward_pre_hooks, part._backward_hooks, part._backward_pre_hooks)):
        return "hooks"
    known = type(part) in LAYERS or type(part) is nn.Sequential  # a stranger's container may hold a function
    for name, value in vars(part).items():
        if callable(value) and (known or name.startswith("__") or hasattr(type(part), name)):
            return f"a {name.strip('_')}"
    tensors = (*part.parameters(recurse=False), *part.buffers(recurse=False))
    return "" if all(type(t) in (Tensor, nn.Parameter) for t in tensors) else "a kind of tensors"


def _traced(module: nn.Module) -> fx.GraphModule:
    """The graph of a forward that takes samples alone and calls no layer with parameters twice."""
    graph = _Tracer().trace(module)
    if len([n for n in graph.nodes if n.op == "placeholder"]) != 1:
        raise _Unproved("its forward takes more than the samples")
    called = [str(n.target) for n in graph.nodes if n.op == "call_module"]
    for i, name in enumerate(called):
        if name in called[:i] and next(module.get_submodule(name).parameters(), None) is not None:
            raise _Unproved(f"{layer_name(name, module.get_submodule(name))} runs more than once")
    return fuse_pools(fx.GraphModule(module, graph))


def first_line(e: Exception) -> str:
    """The first line of an exception's text, or its type."""
    return str(e).strip().splitlines()[0][:160] if str(e).strip() else type(e).__name__
