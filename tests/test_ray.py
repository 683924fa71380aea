"""A real Ray cluster of two nodes on this machine: the same table, even when a node is lost in the middle."""

import os

import pytest
from places import place
from suite_runs import carry_out, digests, planned_of

from dpflbench.api.run_suite import carry_out as _carry_out
from dpflbench.api.showing import shown
from dpflbench.errors import DpflbenchError
from dpflbench.execution.prepare import VARIABLE
from dpflbench.execution.progress import Progress
from dpflbench.execution.ray_cluster import Desk, connect, on_ray
from dpflbench.execution.stopping import Stop
from dpflbench.results.store import Store

pytestmark = pytest.mark.ray
cluster_wanted = pytest.mark.skipif(
    os.environ.get("DPFLBENCH_TEST_RAY") != "1",
    reason="starts a Ray cluster, which takes a minute: set DPFLBENCH_TEST_RAY=1 or use make test-ray",
)
NODE = {"num_cpus": 1, "object_store_memory": 100_000_000}


@pytest.fixture
def cluster():
    """A head, to which this process belongs, and one more node, a CPU each."""
    import ray
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    connect(ray, made.address)  # now: later there are two nodes at this address to belong to
    made.second = made.add_node(**NODE)
    made.wait_for_nodes()
    yield made
    made.shutdown()


def on_cluster(planned, store, catalogue, cluster, stop=None):
    executor = on_ray(cluster.address, planned.manifest.suite["resources"], place(), catalogue, ())
    _carry_out(planned, store, catalogue, executor, stop or Stop(), shown(False))


@cluster_wanted
def test_a_node_lost_in_the_middle_costs_neither_a_run_nor_a_bit(tiny, tmp_path, catalogue, cluster, monkeypatch):
    tiny["algorithms"] = ["FedSGD", "DPSGD", "DPFL-BCS"]
    tiny["seeds"] = 2
    tiny["federation"]["rounds"] = 400
    planned = planned_of(tiny, tmp_path, catalogue)
    serial, remote = Store(tmp_path / "serial"), Store(tmp_path / "remote")
    carry_out(planned, serial, catalogue)
    monkeypatch.setenv(VARIABLE, "0")
    second = cluster.second.node_id[:6]
    real, lost = Progress.tick, []

    def tick(self, tick, where=""):
        real(self, tick, where)
        if not lost and where.endswith(second) and tick.round > 5:
            lost.append(tick.run)
            cluster.remove_node(cluster.second)

    monkeypatch.setattr(Progress, "tick", tick)
    on_cluster(planned, remote, catalogue, cluster)
    assert len(lost) == 1
    assert len(digests(remote)) == 6
    assert digests(remote) == digests(serial)
    assert remote.results().records[lost[0]].measured["resumed_at"] > 0
    assert [p for p in (remote.root / "work").rglob("*") if p.is_file()] == []


@cluster_wanted
def test_runs_on_a_cluster_stop_and_go_on_here(tiny, tmp_path, catalogue, cluster, monkeypatch):
    tiny["algorithms"] = ["DPSGD"]
    tiny["federation"]["rounds"] = 1500
    planned = planned_of(tiny, tmp_path, catalogue)
    serial, remote, stop = Store(tmp_path / "serial"), Store(tmp_path / "remote"), Stop()
    carry_out(planned, serial, catalogue)
    real = Progress.tick

    def tick(self, tick, where=""):
        real(self, tick, where)
        stop.signal = stop.signal or (2 if where and tick.round else 0)

    monkeypatch.setattr(Progress, "tick", tick)
    on_cluster(planned, remote, catalogue, cluster, stop)
    assert digests(remote) == {}
    assert len(list(remote.work("checkpoints").iterdir())) == 1
    carry_out(planned, remote, catalogue)
    assert digests(remote) == digests(serial)
    assert next(iter(remote.results().records.values())).measured["resumed_at"] > 0


def test_the_desk_passes_on_reports_checkpoints_and_the_wish_to_stop():
    from dpflbench.execution.progress import Tick

    desk = Desk()
    assert desk.report(Tick("a", 1, None), "here") is False
    assert desk.report(Tick("a", 2, 5.0), "here") is False
    desk.say("hello")
    desk.save("a", b"1")
    desk.save("a", b"2")
    assert desk.news(stop=True) == ({"a": (Tick("a", 2, 5.0), "here")}, ["hello"], {"a": b"2"})
    assert desk.report(Tick("a", 3, None), "here") is True
    assert desk.load("a") == b"2"
    desk.offer("a", None)
    assert desk.load("a") is None
    assert desk.news(stop=True)[2] == {}


def test_ray_s_client_protocol_and_a_missing_cluster_are_refused_in_one_line():
    with pytest.raises(DpflbenchError, match="run on a node of the cluster with --address auto"):
        connect(None, "ray://head:10001")

    class NoCluster:
        @staticmethod
        def init(**_):
            raise ConnectionError("Could not find any running Ray instance.\nlong advice")

    with pytest.raises(
        DpflbenchError, match=r"--address auto: no Ray cluster to join .ConnectionError: Could not find any running Ray"
    ):
        connect(NoCluster, "auto")
