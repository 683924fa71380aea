"""A hook that wants to know something."""

from dpflbench import hookimpl


@hookimpl
def dpflbench_selectors(suite):
    return {}
