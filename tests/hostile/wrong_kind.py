"""Hands over a selector as an aggregator."""

from dpflbench import hookimpl
from dpflbench_algorithms.parts import Uniform


@hookimpl
def dpflbench_aggregators():
    return {"uniform_mean": Uniform}
