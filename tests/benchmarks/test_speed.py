"""The speed bars: clipped gradients of all clients against Opacus's hooks and against a plain torch step, as ratios.

Run by `make bench`; skipped where benchmarks are off. Ratios go to reports/bench/speed.json with the facts of the
machine.
"""

import json
from pathlib import Path

import pytest
import torch
from contestants import best_chunk, machine, opacus, ours, plain, race, setting

REPORT = Path(__file__).parents[2] / "reports" / "bench" / "speed.json"
CHUNKS = {"resnet20": (8, 16, 32, 64), "softmax": (200, 300, 600, None), "linear": (600, None)}
ROUNDS = {"resnet20": 12, "softmax": 80, "linear": 600}  # turns; best of them, whatever comes out
COST = {"linear": 1.1, "softmax": 1.1, "mnist_cnn": 1.3, "lenet5": 1.5, "resnet20": 1.8}  # at most, in plain steps
GAIN = {"mnist_cnn": (1.4, 1.25), "lenet5": (2.5, 1.9), "resnet20": (1.4, 1.4)}  # at least, over Opacus, in L1 and L2


@pytest.fixture(scope="module")
def report(request):
    if not request.config.getoption("benchmark_enable"):
        pytest.skip("benchmarks run with --benchmark-enable: make bench")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    found = {}
    yield found
    torch.set_num_threads(threads)
    known = json.loads(REPORT.read_text())["ratios"] if REPORT.exists() else {}
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps({"machine": machine(), "ratios": {**known, **found}}, indent=1, sort_keys=True) + "\n")


def measured(contestants, name, course):
    """Best microseconds a sample of each contestant, over a number of turns fixed beforehand."""
    times = race(contestants, ROUNDS.get(name, 6))
    samples = int(course[1].sizes[course[3]].sum())
    return {who: seconds / samples * 1e6 for who, seconds in times.items()}


PLAIN = [
    (name, scattered)
    for name in ("linear", "softmax", "mnist_cnn", "lenet5", "femnist_cnn", "resnet20")
    for scattered in (True, False)
    if scattered or name in ("linear", "softmax")
]  # elsewhere gathering costs nothing to speak of


@pytest.mark.parametrize("order", [2, 1])
@pytest.mark.parametrize(("name", "scattered"), PLAIN)
def test_a_clipped_gradient_costs_little_more_than_a_plain_one(name, scattered, order, report, benchmark):
    course = setting(name, scattered=scattered)
    few = course if name in CHUNKS else setting(name, 2)
    chunk = best_chunk(lambda c: plain(*few, c), CHUNKS.get(name, (50, 100, 150, 200, 300, 600)))
    run = ours(*course, order)
    best = measured({"plain": plain(*course, chunk), "ours": run}, name, course)
    benchmark.pedantic(run, rounds=1)
    ratio, bar = best["ours"] / best["plain"], COST.get(name, float("inf"))
    fact = {
        "ours_us": round(best["ours"], 4),
        "plain_us": round(best["plain"], 4),
        "plain_chunk": chunk,
        "cost": round(ratio, 3),
    }
    which = f"{name} L{order}" + ("" if scattered else ", clients side by side")
    report[f"{which} against plain"] = benchmark.extra_info["ratio"] = fact
    print(f"\n{which}: {ratio:.2f} × a plain step (bar {bar}), {fact}")
    assert ratio <= bar


@pytest.mark.parametrize("order", [2, 1])
@pytest.mark.parametrize("name", ["mnist_cnn", "lenet5", "femnist_cnn", "resnet20"])
def test_a_clipped_gradient_is_cheaper_than_with_opacus(name, order, report, benchmark):
    pytest.importorskip("opacus")
    course = setting(name)
    few = course if name in CHUNKS else setting(name, 2)
    chunk = best_chunk(lambda c: opacus(*few, c, order), CHUNKS.get(name, (25, 50, 100, 200, 300)))
    run = ours(*course, order)
    contestants = {"opacus": opacus(*course, chunk, order), "ours": run}
    assert torch.allclose(contestants["opacus"](), run(), rtol=1e-2, atol=1e-3)  # they race over the same course
    best = measured(contestants, name, course)
    benchmark.pedantic(run, rounds=1)
    ratio, bar = best["opacus"] / best["ours"], GAIN.get(name, (0.0, 0.0))[order - 1]
    fact = {
        "ours_us": round(best["ours"], 3),
        "opacus_us": round(best["opacus"], 3),
        "opacus_chunk": chunk,
        "gain": round(ratio, 3),
    }
    report[f"{name} L{order} against opacus"] = benchmark.extra_info["ratio"] = fact
    print(f"\n{name} L{order}: {ratio:.2f} × faster than Opacus (bar {bar}), {fact}")
    assert ratio >= bar
