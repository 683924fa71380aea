"""A fixed piece of work: how fast, and how exactly, does this process compute?

Run times are compared as multiples of the time this work takes in the same process right after the run, so that a
slower or busier machine does not look like slower code. On a CPU both are CPU time: waiting for a core is nobody's
fault. The hash of what the work computes tells machines apart whose last bits differ: only where it agrees must a final
model be the same to the bit.
"""

import hashlib
import statistics
import time
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn

BATCHES, REPEATS = 5, 5  # about 20 ms in all: short against any run; the median forgives a batch that was disturbed


def reference_seconds(device: str) -> float:
    """Seconds of one reference step on the device: CPU time on a CPU, wall time elsewhere."""
    x, y, weight = _inputs(device)
    _step(x, y, weight)  # allocations and kernels are not what is measured
    clock = time.process_time if device == "cpu" else time.perf_counter
    times = []
    for _ in range(BATCHES):
        began = clock()
        for _ in range(REPEATS):
            out = _step(x, y, weight)
        float(out.sum())  # waits for the device
        times.append((clock() - began) / REPEATS)
    return statistics.median(times)


@lru_cache
def numerics(threads: int) -> str:
    """Hash of the last bits this machine computes on a CPU: random numbers, products, logarithms, convolutions,
    decompositions.
    """
    x, y, weight = _inputs("cpu")
    gram = (x.T @ x).double()
    convolved = nn.functional.conv2d(x.view(40, 1, 25, 50), weight.view(10, 1, 10, 5))
    results = [x, _step(x, y, weight), torch.linalg.eigh(gram)[0], convolved, x.cumsum(0), x.exp().log1p()]
    total = hashlib.sha256(f"{threads} {torch.__version__} {np.__version__}".encode())
    for tensor in results:
        total.update(tensor.contiguous().numpy().tobytes())
    array = x.double().numpy()
    total.update((array.T @ array).tobytes())
    return total.hexdigest()[:16]


def reference(device: str) -> dict[str, object]:
    """What a record keeps of it, among what was measured."""
    return {
        "reference_seconds": reference_seconds(device),
        "numerics": numerics(torch.get_num_threads()),
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }


def _inputs(device: str) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(1000, 50, generator=generator), torch.randn(10, 50, generator=generator)
    y = torch.randint(10, (1000,), generator=generator)
    return x.to(device), y.to(device), weight.to(device)


def _step(x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """The clipped gradient of a softmax regression in chunks of 200 samples: what a run spends its time on."""
    total = torch.zeros_like(weight)
    for start in range(0, len(x), 200):
        a, label = x[start : start + 200], y[start : start + 200]
        g = torch.softmax(a @ weight.T, 1)
        g = g - nn.functional.one_hot(label, g.shape[1])
        norm = g.norm(dim=1) * a.norm(dim=1)
        total = total + (g * (1.0 / norm).clamp(max=1.0)[:, None]).T @ a
    return total
