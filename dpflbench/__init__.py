"""Benchmarks of differentially private federated learning at equal, verified privacy budgets.

The flow, one stage a module:

    suite YAML → plan of runs → federation (select → clipped gradient → noise → aggregate → evaluate)
    suite_reading.py planning.py  federation/
    → ledger → records → report
      privacy/ results/ report/

From Python: `import dpflbench as db`, then `db.suite`, `db.suites`, `db.plan`, `db.run` and `db.read` (api/README.md).
Plugins import `hookimpl` from here and everything else from `dpflbench.interfaces`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from dpflbench.api.calls import plan, run
    from dpflbench.api.drafts import SuiteDraft, suite, suites
    from dpflbench.api.folders import ResultsFolder, read
    from dpflbench.api.plan_table import SuitePlan

__version__ = "0.2.0"
__all__ = [
    "ResultsFolder",
    "SuiteDraft",
    "SuitePlan",
    "__version__",
    "hookimpl",
    "plan",
    "read",
    "run",
    "suite",
    "suites",
]

hookimpl = pluggy.HookimplMarker("dpflbench")

# name → module, loaded when it is asked for: `import dpflbench` and `--help` stay light
_CALLS = {
    "plan": "calls",
    "run": "calls",
    "SuiteDraft": "drafts",
    "suite": "drafts",
    "suites": "drafts",
    "ResultsFolder": "folders",
    "read": "folders",
    "SuitePlan": "plan_table",
}


def __getattr__(name: str) -> Any:
    if name not in _CALLS:
        raise AttributeError(f"module 'dpflbench' has no attribute '{name}'")
    return getattr(import_module(f"dpflbench.api.{_CALLS[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_CALLS})
