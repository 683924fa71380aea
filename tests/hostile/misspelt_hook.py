"""Says `agregators`."""

from dpflbench import hookimpl


@hookimpl
def dpflbench_agregators():
    return {}
