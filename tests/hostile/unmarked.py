"""Forgets the decorator."""

from hostile.parts import Median


def dpflbench_aggregators():
    return {"median": Median}
