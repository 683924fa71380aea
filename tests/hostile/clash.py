"""Wants to be the mean."""

from dpflbench import hookimpl
from hostile.parts import Median


@hookimpl
def dpflbench_aggregators():
    return {"mean": Median}
