"""A hook that fails when asked."""

from dpflbench import hookimpl


@hookimpl
def dpflbench_selectors():
    raise KeyError("no selectors today")
