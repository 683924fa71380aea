"""A factory whose parameters nobody can know."""

from dpflbench import hookimpl


def anything(**options):
    """Take whatever comes."""
    return options


@hookimpl
def dpflbench_aggregators():
    return {"anything": anything}
