"""Returns a list where a mapping from name to factory belongs."""

from dpflbench import hookimpl
from hostile.parts import Median


@hookimpl
def dpflbench_aggregators():
    return [Median]
