"""What noise costs: exactly rounded sums against float64 normals of NumPy's Philox and float32 normals of torch.

Run by `make bench`; skipped where benchmarks are off. Figures go to reports/bench/noise.json.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from contestants import machine, race

from dpflbench.draws import LAPLACE, NORMAL
from dpflbench.randomness import Streams

REPORT = Path(__file__).parents[2] / "reports" / "bench" / "noise.json"
BAR = 2.5  # at most, in Philox normals


@pytest.mark.parametrize(("job", "dim", "turns"), [("main job", 510, 400), ("resnet20", 272_474, 6)])
def test_exactly_rounded_noise_costs_little_more_than_double_precision(job, dim, turns, request):
    if not request.config.getoption("benchmark_enable"):
        pytest.skip("benchmarks run with --benchmark-enable: make bench")
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    value, scale, rounds = rng.normal(size=(20, dim)), rng.uniform(0.01, 0.1, 20), iter(range(10**6))
    streams = Streams(0, bytes(16), "bench")
    single, scale32 = torch.from_numpy(value).float(), torch.from_numpy(scale).float()[:, None]

    def noised(law):
        return lambda: streams.draws("noise", next(rounds)).noised(value, scale, law)

    def philox():
        generator = np.random.Generator(np.random.Philox(key=next(rounds)))
        return value + scale[:, None] * generator.standard_normal(value.shape)

    def torch32():
        generator = torch.Generator().manual_seed(next(rounds))
        return single + scale32 * torch.randn(single.shape, generator=generator)

    contestants = {"gaussian": noised(NORMAL), "laplace": noised(LAPLACE), "philox": philox, "torch float32": torch32}
    best = {who: round(seconds / value.size * 1e9, 2) for who, seconds in race(contestants, turns).items()}
    known = json.loads(REPORT.read_text()) if REPORT.exists() else {}
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    figures = {**known.get("nanoseconds a coordinate", {}), f"{job}, 20 x {dim}": best}
    REPORT.write_text(json.dumps({"machine": machine(), "nanoseconds a coordinate": figures}, indent=1) + "\n")
    print(f"\n{job}: {best} ns a coordinate")
    assert max(best["gaussian"], best["laplace"]) <= BAR * best["philox"]
