"""Hands over a selector as an aggregator."""

from dpflbench import hookimpl
from dpflbench_algorithms.parts import UniformSelection


@hookimpl
def dpflbench_aggregators():
    return {"uniform_mean": UniformSelection}
