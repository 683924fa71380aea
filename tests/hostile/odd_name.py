"""Names a part after a path."""

from dpflbench import hookimpl
from hostile.parts import Median


@hookimpl
def dpflbench_aggregators():
    return {"../../etc/passwd": Median}
