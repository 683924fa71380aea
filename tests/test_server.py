"""The server's step: formulas by hand, and keys that exclude each other."""

import numpy as np
import pytest
import torch
from harness import record_of, world_of

from dpflbench.errors import DpflbenchError, SuiteError
from dpflbench.federation.server import first_moments, stepped
from dpflbench.federation.simulate import initial_state, rounds
from dpflbench.interfaces import Server
from dpflbench.planning import plan_suite
from dpflbench.suite_reading import check, normalise

ONE = torch.tensor([1.0, -2.0])


def steps(server, *directions):
    moments, out = first_moments(server, torch.zeros(2)), []
    for direction in directions:
        step, moments = stepped(server, direction, moments)
        out.append(step)
    return out


def test_sgd_takes_the_direction_and_momentum_its_running_sum():
    assert [s.tolist() for s in steps(Server(), ONE, ONE)] == [[1.0, -2.0], [1.0, -2.0]]
    assert [s.tolist() for s in steps(Server("momentum", 0.5), ONE, ONE)] == [[1.0, -2.0], [1.5, -3.0]]


def test_adam_and_yogi_by_hand():
    """First step: mean 0.1 d; Adam's square 0.99 tau² + 0.01 d², Yogi's tau² + 0.01 d² sign(d² - tau²)."""
    tau = 1e-3
    for kind, start in (("adam", 0.99 * tau**2), ("yogi", tau**2)):
        (step,) = steps(Server(kind), ONE)
        expected = [0.1 * d / (np.sqrt(start + 0.01 * d * d) + tau) for d in (1.0, -2.0)]
        np.testing.assert_allclose(step.numpy(), expected, rtol=1e-5)


def test_yogi_forgets_a_large_gradient_more_slowly_than_adam():
    small = torch.tensor([0.1, 0.1])
    adam, yogi = (steps(Server(kind), 10 * ONE, *[small] * 50)[-1] for kind in ("adam", "yogi"))
    assert bool((adam.abs() > yogi.abs()).all())


def test_both_spellings_of_momentum_are_one_to_the_bit(tiny, catalogue):
    ends = []
    for federation in ({"momentum": 0.5}, {"server": {"kind": "momentum", "beta": 0.5}}):
        prepared = world_of(tiny | {"federation": tiny["federation"] | federation}, catalogue, "FedSGD")
        world = prepared.world
        *_, last = rounds(world, initial_state(world, prepared.theta, prepared.phi), prepared.ledger)
        ends.append(last.theta)
    torch.testing.assert_close(ends[0], ends[1], rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["sgd", "momentum", "adam", "yogi"])
def test_every_server_trains(tiny, catalogue, kind):
    tiny["federation"] |= {"server": kind, "lr": {"initial": 0.05}}
    record = record_of(tiny, catalogue, "DPSGD")
    assert record.status == "done"
    assert record.config["federation"]["server"]["kind"] == kind


def test_a_server_beside_momentum_and_numbers_out_of_range_are_refused(tiny, catalogue):
    tiny["federation"] |= {"momentum": 0.5, "server": "adam"}
    with pytest.raises(SuiteError, match=r"momentum: 0\.5 beside a server"):
        plan_suite(check(normalise(tiny), "x", []), catalogue, None)
    with pytest.raises(DpflbenchError, match=r"beta: 1\.5; allowed: 0 to below 1"):
        Server("adam", beta=1.5)
    with pytest.raises(DpflbenchError, match="tau: 0; allowed: above 0"):
        Server("adam", tau=0)
