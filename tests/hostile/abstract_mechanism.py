"""A mechanism that leaves half of its interface open."""

from dpflbench import hookimpl
from dpflbench.interfaces import Mechanism


class Half(Mechanism):
    """Half a mechanism."""

    name = "half"

    def sample(self, scale, shape, rng):
        return scale


@hookimpl
def dpflbench_mechanisms():
    return {"half": Half}
