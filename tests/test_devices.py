"""Away from the CPU: the engine and whole rounds on a device that is only pretended, and on GPUs if there are any."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from device_visits import ENGINES, RUNS, WIDTH, gap_of, outcome, sums, tensors_of
from places import KEY

from dpflbench.draws import Draws
from dpflbench_algorithms.mechanisms import Gaussian, Laplace

HERE = Path(__file__).parent
NUMBER, K = [], 4
LOOKS = [NUMBER, NUMBER, [3, K], NUMBER]  # updates and direction are finite; who pulled; the model is finite
GPUS = torch.cuda.device_count() if torch.cuda.is_available() else 0
NOISY = [name for name in RUNS if name != "no noise"]
LOCAL = [name for name in RUNS if RUNS[name].steps and not RUNS[name].uneven]


@pytest.fixture(scope="module")
def visits(blobs):
    """What `device_visits.py` prints, by kind and name."""
    done = subprocess.run(
        [sys.executable, str(HERE / "device_visits.py"), str(blobs)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    found = {kind: [v for v in lines if v["kind"] == kind] for kind in ("control", "small bound", "run", "engine")}
    assert [v["name"] for v in found["run"]] == list(RUNS)
    assert [tuple(v["name"]) for v in found["engine"]] == ENGINES
    return found


def run_of(visits, name):
    """What was seen of a run: the parts of it that were counted are the first evaluation, two rounds, a checkpoint, two
    rounds.
    """
    found = next(v for v in visits["run"] if v["name"] == name)
    assert len(found["fetched"]) == 6
    return found


def by_round(parts):
    return [parts[i] for i in (1, 2, 4, 5)]


# ---------------------------------------------------------------- the pretended device


def test_the_pretended_device_notices_a_tensor_on_the_host_and_every_look_at_its_numbers(visits):
    """Two numbers, a size that depends on numbers, a tensor; an index and a stacked number of the host are refused."""
    (control,) = visits["control"]
    assert len(control["refused"]) == 3
    assert all("two devices, pretended:0 and cpu" in text for text in control["refused"])
    assert control["fetched"] == [NUMBER, NUMBER, NUMBER, [3]]
    assert control["sent"] == [[3]]


# ---------------------------------------------------------------- the engine


def test_no_tensor_is_on_the_wrong_device_in_any_model_norm_or_transform(visits):
    assert all(v["places"] == ["pretended:0"] and v["gap"] < 1e-14 for v in visits["engine"])


def test_a_pass_fetches_one_number_and_no_tensor(visits):
    """Whether all norms are what float32 can clip; of a full step and of a minibatch step alike."""
    assert all(v["fetched"] == [[NUMBER], [NUMBER]] for v in visits["engine"])


def test_a_clip_bound_too_small_for_exact_sums_is_refused_there_too(visits):
    (found,) = visits["small bound"]
    assert found["said"] == "engine: clip_norm 1e-13; sums keep their bound from 9.1e-13 on"


# ---------------------------------------------------------------- whole rounds


@pytest.mark.parametrize("name", NOISY)
def test_a_run_elsewhere_ends_where_the_cpu_ends_to_the_bit_with_all_its_state_there(visits, name):
    """Sums are added in another order, so their last bits differ; what is released lies on a grid coarser than that."""
    found = run_of(visits, name)
    assert found["places"] == ["pretended:0"]
    assert found["gap"] == 0.0


def test_a_run_without_noise_ends_within_rounding_of_the_cpu_and_fetches_no_message(visits):
    """LOOKS alone, and two numbers of each evaluation."""
    found = run_of(visits, "no noise")
    assert found["places"] == ["pretended:0"]
    assert found["gap"] < 1e-6
    assert by_round(found["fetched"]) == [[*LOOKS], [*LOOKS, [2]]] * 2


@pytest.mark.parametrize("name", [name for name in NOISY if name != "uneven"])
def test_a_round_fetches_messages_for_their_noise_and_otherwise_some_numbers(visits, name):
    """Each release: whether norms can be clipped, and the exact message [K, M], for noise is drawn on the host. Then
    exact losses, for the same reason; LOOKS; utility and loss if due. Server
    code in a process of its own is sent what it may know of the cohort, five facts, and updates if it wants them.
    """
    setting, found = RUNS[name], run_of(visits, name)
    releases = max(1, setting.steps)
    apart = [[K]] * 5 if setting.isolated else []
    if name == "rows apart":  # once for the direction, once for the weights it reports; two norms hold them against it
        apart = [*apart, [K, setting.width]] * 2 + [NUMBER] * 2
    for number, (fetched, sent) in enumerate(zip(*map(by_round, (found["fetched"], found["sent"])), strict=True)):
        losses = [[K, setting.losses[number]]] if setting.losses[number] else []
        due = [[2]] if number % 2 else []
        looks = [NUMBER, *apart, *LOOKS[1:]]
        assert fetched == [NUMBER, [K, setting.width]] * releases + losses + looks + due
        assert sent.count([K, setting.width]) == releases  # back with noise, once each
        assert all(len(shape) < 2 for shape in sent if shape != [K, setting.width]) or number == 0


def test_clients_that_stand_still_are_not_fetched(visits):
    """Sizes differ, so do the steps of half an epoch: rows become fewer, and numbers stay one a release."""
    for fetched in by_round(run_of(visits, "uneven")["fetched"]):
        messages = [shape for shape in fetched if shape[1:] == [WIDTH]]
        heights = [height for height, _ in messages]
        assert heights == sorted(heights, reverse=True)
        assert heights[0] == K > heights[-1]
        assert fetched.count(NUMBER) == len(messages) + 3


@pytest.mark.parametrize("name", LOCAL)
def test_a_local_step_sends_each_index_once(visits, name):
    """Chosen records, whose they are, and where they lie in a padded batch."""
    for sent in by_round(run_of(visits, name)["sent"]):
        assert sum(len(shape) == 1 and shape[0] > 2 * K for shape in sent) <= 3 * RUNS[name].steps


def test_the_first_evaluation_fetches_the_module_once_and_two_numbers(visits):
    """A softmax [3, 4] and its bias, for the self-test of its gradients runs on the host."""
    assert all(v["fetched"][0][-3:] == [[3, 4], [3], [2]] for v in visits["run"])


# ---------------------------------------------------------------- real ones


def gpu(at):
    if at >= GPUS:
        pytest.skip(f"no CUDA device {at} here")
    return torch.device("cuda", at)


@pytest.mark.gpu
@pytest.mark.skipif(not GPUS, reason="no CUDA device here")
@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize(("name", "order", "personal"), ENGINES)
def test_every_gpu_gives_what_the_cpu_gives_twice_to_the_bit(name, order, personal, at):
    device = gpu(at)

    def flat(device):
        found = [t for part in sums(name, order, personal, device) if part for t in part]
        assert {t.device.type for t in found} == {torch.device(device).type}
        return [t.cpu() for t in found]

    found = flat(device)
    assert gap_of(found, flat("cpu")) < 1e-12
    assert all(torch.equal(a, b) for a, b in zip(found, flat(device), strict=True))


@pytest.mark.gpu
@pytest.mark.skipif(not GPUS, reason="no CUDA device here")
@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("mechanism", [Gaussian(), Laplace()])
def test_noise_on_a_gpu_is_that_of_the_cpu_to_the_bit(mechanism, at):
    value, scale = torch.linspace(-1.0, 1.0, 4000, dtype=torch.float64).view(4, 1000), np.array([0.1, 1.0, 3.0, 1e-6])
    found = mechanism.release(value.to(gpu(at)), scale, Draws(KEY * 2))
    assert found.device == gpu(at)
    assert torch.equal(found.cpu(), mechanism.release(value, scale, Draws(KEY * 2)))


@pytest.mark.gpu
@pytest.mark.skipif(not GPUS, reason="no CUDA device here")
@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("name", RUNS)
def test_a_run_on_a_gpu_ends_where_the_cpu_ends_and_leaves_nothing_on_another(name, at, blobs, catalogue):
    """Within a grid step of the noise in a few coordinates, where a sum was within float32 of being rounded the other
    way: 1/1024 of its scale.
    """
    device, others = gpu(at), [n for n in range(GPUS) if n != at]
    before = [torch.cuda.memory_allocated(n) for n in others]
    state, ledger, _ = outcome(RUNS[name], blobs, catalogue, device)
    assert {t.device for t in tensors_of(state)} == {device}
    assert all(torch.cuda.memory_allocated(n) <= held for n, held in zip(others, before, strict=True))
    here, paid, _ = outcome(RUNS[name], blobs, catalogue, "cpu")
    assert gap_of(tensors_of(state), tensors_of(here)) < 2e-3
    np.testing.assert_array_equal(ledger.used, paid.used)
    np.testing.assert_allclose(state.losses.received, here.losses.received, atol=0.05)
    again = outcome(RUNS[name], blobs, catalogue, device)[0]
    assert torch.equal(state.theta, again.theta)
