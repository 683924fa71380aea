"""Events by hand, for tests of ledgers and accountants."""

import numpy as np

from dpflbench.interfaces import Event


def event(sensitivity, scale=np.nan, kind="gradient", law="gaussian", rate=1.0, steps=1):
    """Releases of that sensitivity and scale, a row a client."""
    sensitivity = np.asarray(sensitivity, dtype=np.float64)
    return Event(
        kind=kind,
        law=law,
        sensitivity=sensitivity,
        scale=np.broadcast_to(np.asarray(scale, dtype=np.float64), sensitivity.shape).copy(),
        rate=np.full(sensitivity.shape, rate),
        steps=np.full(sensitivity.shape, steps, dtype=np.int64),
    )
