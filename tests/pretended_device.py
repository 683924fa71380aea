"""A device that is not there. Its tensors have numbers, which the CPU keeps and computes with: whatever runs here must
come out as on a CPU, to the bit.

An operation on tensors of two devices raises, as it would on a GPU. Noted are what the host asks of the device (numbers
read, sizes that depend on numbers, tensors copied to it) and what it sends there. The device stays with its process:
`device_visits.py` is one.
"""

import torch
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "pretended"
ATEN = torch.ops.aten
INDEXED = (ATEN.index.Tensor, ATEN.index_put_.default, ATEN.index_put.default)


class There(torch.Tensor):
    """A tensor on the device: `kept` has its numbers."""

    @staticmethod
    def __new__(cls, kept, device):
        there = torch.Tensor._make_wrapper_subclass(
            cls,
            kept.shape,
            strides=kept.stride(),
            storage_offset=kept.storage_offset(),
            dtype=kept.dtype,
            device=device,
        )
        there.kept = kept
        return there

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError(f"{func} on the pretended device, which is not open")


class Pretended(TorchDispatchMode):
    """The device, open. `fetched` and `sent` have the shape of every tensor that was copied, and () for a number."""

    def __init__(self, device):
        super().__init__()
        self.device, self.fetched, self.sent = device, [], []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        tensors = [a for a in tree_flatten((args, kwargs))[0] if isinstance(a, torch.Tensor)]
        there = [t for t in tensors if isinstance(t, There)]
        wanted = kwargs.get("device")
        goal = (there[0].device if there else torch.device("cpu")) if wanted is None else torch.device(wanted)
        if func is ATEN._to_copy.default:
            self._moves(tensors[0].device, goal, tensors[0].shape)
        elif func is ATEN.copy_.default:
            self._moves(args[1].device, args[0].device, args[1].shape)
            goal = args[0].device
        elif there:
            self._refuse_two(func, tensors)
            self._note_looks(func, args)
        if not there and goal.type != NAME:
            return func(*args, **kwargs)
        if wanted is not None:
            kwargs = {**kwargs, "device": "cpu"}
        plain = tree_map(lambda a: a.kept if isinstance(a, There) else a, (args, kwargs))
        found = func(*plain[0], **plain[1])
        if torch.Tag.inplace_view in func.tags:  # a tensor has got another shape: so must its outside
            with no_dispatch():
                func(*args, **kwargs)
        back = {id(t.kept): t for t in there}  # what changed in place is what came in
        return tree_map(lambda t: self._placed(t, goal, back), found)

    def _placed(self, found, goal, back):
        if not isinstance(found, torch.Tensor) or goal.type != NAME:
            return found
        return back[id(found)] if id(found) in back else There(found, goal)

    def _moves(self, source, goal, shape):
        if source.type != goal.type:
            (self.fetched if goal.type == "cpu" else self.sent).append(tuple(shape))

    def _refuse_two(self, func, tensors):
        """A number of the host may join in where operations go element by element; nothing else may."""
        single = torch.Tag.pointwise in func.tags
        devices = {str(t.device) for t in tensors if not (single and t.device.type == "cpu" and not t.ndim)}
        if len(devices) > 1:
            raise RuntimeError(f"{func}: tensors on two devices, {' and '.join(sorted(devices, reverse=True))}")

    def _note_looks(self, func, args):
        """A number that is asked for, and a size that depends on numbers: the host waits for either."""
        if func in INDEXED:
            looks = any(t is not None and t.dtype in (torch.bool, torch.uint8) for t in args[1])
        else:
            looks = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & set(func.tags)
        if looks:
            self.fetched.append(())


def register():
    """The device under its name, for the rest of the process."""
    _setup_privateuseone_for_python_backend(NAME)
    return torch.device(NAME, 0)
