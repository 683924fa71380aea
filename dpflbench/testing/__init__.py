"""Conformance checks for plugin authors: `check_*` raise ConformanceError at the first broken rule, with one line on
how to fix it.

from dpflbench.testing import check_aggregator, check_plugin

def test_my_aggregator_conforms():
    check_aggregator(MyAggregator)          # a part or its factory

def test_the_installed_plugin_conforms():
    check_plugin("my_plugin")               # everything it registers; also `dpflbench check my_plugin`
"""

from dpflbench.testing.accountants import check_accountant
from dpflbench.testing.aggregators import check_aggregator
from dpflbench.testing.algorithms import check_algorithm
from dpflbench.testing.factories import check_factory
from dpflbench.testing.features import check_feature
from dpflbench.testing.kit import Examination, check_part, check_plugin, examine
from dpflbench.testing.local_rules import check_local_rule
from dpflbench.testing.local_updates import check_local_update
from dpflbench.testing.mechanisms import check_mechanism
from dpflbench.testing.populations import check_budget, check_partition
from dpflbench.testing.rules import ConformanceError
from dpflbench.testing.sections import check_section
from dpflbench.testing.selectors import check_selector
from dpflbench.testing.sources import check_dataset, check_model
from dpflbench.testing.trackers import check_tracker
from dpflbench.testing.transforms import check_transform

__all__ = [
    "ConformanceError",
    "Examination",
    "check_accountant",
    "check_aggregator",
    "check_algorithm",
    "check_budget",
    "check_dataset",
    "check_factory",
    "check_feature",
    "check_local_rule",
    "check_local_update",
    "check_mechanism",
    "check_model",
    "check_part",
    "check_partition",
    "check_plugin",
    "check_section",
    "check_selector",
    "check_tracker",
    "check_transform",
    "examine",
]
