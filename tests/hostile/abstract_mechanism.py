"""A mechanism that leaves half of its interface open."""

from dpflbench import hookimpl
from dpflbench.interfaces import Mechanism


class Half(Mechanism):
    """Half a mechanism."""

    name = "half"

    def noised(self, value, scale, draws):
        return value


@hookimpl
def dpflbench_mechanisms():
    return {"half": Half}
