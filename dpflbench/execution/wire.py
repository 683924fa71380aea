"""What passes between the loop and a process of server code: plain data, so that reading it runs nobody's code.

Numbers, texts, arrays, tensors, and dicts, lists and tuples of those: just what a state may hold (interfaces.State).
Arrays travel as bytes; what arrives is read by an unpickler that knows no class at all.
"""

import io
import pickle
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpflbench.errors import PluginError

ARRAY, TENSOR = "dpflbench/array", "dpflbench/tensor"


def pack(value: Any, where: str = "state") -> bytes:
    """The value as bytes; PluginError names what cannot travel."""
    return pickle.dumps(_plain(value, where), protocol=5)


def unpack(data: bytes) -> Any:
    """What `pack` was given; tensors on the host. PluginError for anything else."""
    try:
        return _rebuilt(_NoClasses(io.BytesIO(data)).load())
    except (pickle.UnpicklingError, ValueError, TypeError, EOFError, AttributeError, IndexError, KeyError) as e:
        raise PluginError(f"server code sent what is no plain data ({type(e).__name__}: {e})") from None


class _NoClasses(pickle.Unpickler):
    """Reads builtin containers, numbers, texts and bytes."""

    def find_class(self, module: str, name: str) -> Any:
        """Refuse: plain data names no class."""
        raise pickle.UnpicklingError(f"{module}.{name}")


def _plain(value: Any, where: str) -> Any:
    if value is None or type(value) in (bool, int, float, str, bytes):
        return value
    if isinstance(value, Tensor):
        array = value.detach().cpu().contiguous().numpy()
        return (TENSOR, array.dtype.str, array.shape, array.tobytes())
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise PluginError(f"{where}: an array of {value.dtype} cannot be handed over")
        return (ARRAY, value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, dict):
        return {_plain(k, where): _plain(v, f"{where}.{k}") for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_plain(v, f"{where}[{i}]") for i, v in enumerate(value))
    raise PluginError(
        f"{where}: {type(value).__name__} cannot be handed over; allowed: None, numbers, texts, tensors, arrays, and "
        "dicts, lists and tuples of those"
    )


def _rebuilt(value: Any) -> Any:
    if type(value) is tuple and len(value) == 4 and value[0] in (ARRAY, TENSOR):
        array = np.frombuffer(value[3], dtype=np.dtype(value[1])).reshape(value[2]).copy()
        return torch.from_numpy(array) if value[0] == TENSOR else array
    if type(value) is dict:
        return {k: _rebuilt(v) for k, v in value.items()}
    return type(value)(_rebuilt(v) for v in value) if type(value) in (list, tuple) else value
