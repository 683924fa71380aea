"""Benchmarks of differentially private federated learning at equal, verified privacy budgets.

The flow, one stage a module:

    suite YAML → plan of runs → federation (select → clipped gradient → noise → aggregate → evaluate)
    suite.py     plan.py        federation/
    → ledger → records → report
      privacy/ results/ report/

Plugins import `hookimpl` from here and everything else from `dpflbench.interfaces`.
"""

import pluggy

__version__ = "0.2.0"
__all__ = ["__version__", "hookimpl"]

hookimpl = pluggy.HookimplMarker("dpflbench")
