"""Every plugin and part of tests/hostile is refused by exactly one line that says what is wrong, and by that line
only.
"""

from importlib.metadata import EntryPoint

import pytest
from hostile import local_rules, parts, populations

from dpflbench.catalogue import Part, load
from dpflbench.errors import PluginError
from dpflbench.testing import (
    ConformanceError,
    check_accountant,
    check_aggregator,
    check_algorithm,
    check_budget,
    check_dataset,
    check_feature,
    check_local_rule,
    check_local_update,
    check_mechanism,
    check_model,
    check_part,
    check_partition,
    check_selector,
    check_transform,
)


def refusal(check, *args):
    with pytest.raises(PluginError) as caught:
        check(*args)
    lines = str(caught.value).splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def plugin(module):
    return EntryPoint(module, f"hostile.{module}", "dpflbench")


PLUGINS = {
    "broken_import": "does not import (ModuleNotFoundError: No module named 'a_package_that_nobody_has')",
    "exits_on_import": "does not import (RuntimeError: first line)",
    "exits": "does not import (SystemExit: 0)",
    "unmarked": "dpflbench_aggregators is not marked as a hook; put @hookimpl of dpflbench above it",
    "empty": "supplies nothing; expected a function marked @hookimpl, one of dpflbench_accountants, ",
    "misspelt_hook": "'dpflbench_agregators' is not a hook; did you mean 'dpflbench_aggregators'?",
    "takes_kwargs": "aggregator 'anything': a factory takes named keyword parameters only (no *args, **kwargs)",
    "not_a_mapping": "dpflbench_aggregators must return a mapping from name to factory, found [<class",
    "raising_hook": "dpflbench_selectors raises KeyError: 'no selectors today'",
    "hook_with_arguments": "a hook does not fit",
    "wrong_kind": "aggregator 'uniform_mean': lacks weights() or init, aggregate() of its interface",
    "odd_name": "a name must be printable, without '/', '\\' or '$'",
    "abstract_mechanism": "leaves variance abstract",
}


@pytest.mark.parametrize("module", PLUGINS)
def test_a_plugin_that_does_not_fit_its_hooks_is_refused_when_loaded(module):
    line = refusal(load, (), [plugin(module)])
    assert line.startswith(f"plugin '{module}' of unknown 0: ")
    assert PLUGINS[module] in line
    assert line.endswith("; go on without a plugin by --without NAME")


def test_a_clash_names_both_suppliers():
    mean = EntryPoint("a_first", "dpflbench_algorithms.parts", "dpflbench")
    line = refusal(load, (), [mean, plugin("clash")])
    assert "plugin 'clash' of unknown 0: aggregator 'mean' is already supplied by plugin 'a_first' of unknown 0" in line


def test_one_broken_plugin_does_not_hide_another():
    with pytest.raises(PluginError) as caught:
        load((), [plugin("broken_import"), plugin("misspelt_hook"), plugin("raising_hook")])
    assert [line.split("'")[1] for line in str(caught.value).splitlines()] == [
        "broken_import",
        "misspelt_hook",
        "raising_hook",
    ]


def test_without_a_plugin_the_others_load():
    assert load(["broken_import"], [plugin("broken_import")]).parts["aggregators"] == {}


CASES = [
    (check_aggregator, parts.WrongShape, "the direction of 6 rows has shape (6, 53); expected (53,)"),
    (check_aggregator, parts.NotATensor, "the direction is a ndarray"),
    (check_aggregator, parts.NoPair, "aggregate returns Tensor; expected a pair (direction, state)"),
    (check_aggregator, parts.MakesNaN, "made non-finite values of finite updates"),
    (check_aggregator, parts.ChangesUpdates, "aggregate changes updates.values in place"),
    (check_aggregator, parts.ChangesWeights, "aggregate changes updates.epsilon in place"),
    (check_aggregator, parts.ChangesState, "aggregate changes state['rounds'] in place"),
    (check_aggregator, parts.ChangesSetup, "init(setup) raises ValueError: output array is read-only"),
    (check_aggregator, parts.KeepsGlobalState, "the same three rounds played twice give different directions"),
    (check_aggregator, parts.KeepsAttributes, "aggregate changes its own attributes"),
    (check_aggregator, parts.DrawsGlobally, "aggregate draws from torch's global generator"),
    (check_aggregator, parts.FirstRow, "permuting the rows moves the direction"),
    (check_aggregator, parts.OnlyFloat32, "the direction is torch.float32 on cpu; expected torch.float64 on cpu"),
    (check_aggregator, parts.NeedsTwo, "made non-finite values of finite updates"),
    (check_aggregator, parts.HidesNaN, "a row of NaN vanishes in a finite direction"),
    (check_aggregator, parts.Inventor, "makes a direction of no updates at all"),
    (check_aggregator, parts.HoldsALambda, "cannot be pickled"),
    (check_aggregator, parts.OddState, "its state holds a object"),
    (check_aggregator, parts.TwoArguments, "aggregate(updates) does not take 2 arguments"),
    (check_aggregator, parts.Undocumented, "has no docstring"),
    (check_aggregator, parts.Unannotated, "parameter 'strength' has no annotation"),
    (check_aggregator, parts.WrongDefault, "the default of 'rank', 'one', is not what its annotation says"),
    (check_aggregator, parts.Raises, "has no init(); expected the interface RowAggregator"),
    (check_selector, parts.Raises, "plan(view, rng) raises ZeroDivisionError: division by zero"),
    (check_selector, parts.Declines, "raises DpflbenchError: only federations of a million clients are interesting"),
    (check_selector, parts.ArrayOfTexts, "plan.notes: an array of <U1 cannot be kept in a record"),
    (check_selector, parts.TooManyUses, "plan.uses ranges from 0 to 40; allowed: 0 to the horizon 10"),
    (check_selector, parts.FractionalUses, "plan.uses is float64 (12,); expected an integer array of shape (12,)"),
    (check_selector, parts.WrongSum, "plan.uses sums to 0; expected horizon * cohort = 40"),
    (check_selector, parts.TooLong, "plan.horizon is 11; allowed: 1 to 10, the rounds left"),
    (check_selector, parts.Overspends, "its plan overspends (round"),
    (
        check_selector,
        parts.SpendsAllAtOnce,
        "client 0 has 2e-07 of an even share of its budget for a planned use; allowed: 0.001",
    ),
    (check_selector, parts.CostOfOneAxis, "plan.cost must hold 12 finite, non-negative values, [N, A]"),
    (check_selector, parts.IgnoresTheSeed, "the same run planned twice under one seed gives different plans"),
    (check_selector, parts.DrawsFromNumPy, "plan draws from NumPy's global generator"),
    (check_selector, parts.ChangesTheView, "plan(view, rng) raises ValueError: assignment destination is read-only"),
    (check_selector, parts.UnrecordableNotes, "object cannot be kept in a record"),
    (check_selector, parts.NoPlan, "plan returns ndarray; expected a dpflbench.interfaces.Plan"),
    (check_selector, parts.BoundlessProbe, "loss_bound must be positive"),
    (check_selector, parts.Median, "has no plan()"),
    (check_transform, parts.NotIdentity, "at its initial phi, apply moves inputs"),
    (check_transform, parts.CouplesRows, "a row's output depends on other rows of the batch"),
    (check_transform, parts.Detaches, "its output has no gradient by phi"),
    (check_transform, parts.ChangesShape, "apply returns torch.float32 (5, 64)"),
    (check_transform, parts.DrawsPhi, "init draws from torch's global generator"),
    (check_mechanism, parts.HalfTheNoise, "by variance() 0.25"),
    (check_accountant, parts.Contradicted, "its second opinion"),
    (check_accountant, parts.KnowsNothing, "has a proof for none of gaussian, laplace noise"),
    (check_local_update, parts.HalfTheSensitivity, "one example moves a release by 0.14"),
    (check_local_update, parts.Unprotected, "compute calls protect 0 times"),
    (check_local_rule, local_rules.OneDirection, "direction returns torch.float32 (53,); expected float32 (3, 53)"),
    (check_local_rule, local_rules.DoubleSteps, "direction returns torch.float64 (3, 53)"),
    (check_local_rule, local_rules.LeansOnOthers, "a client's message depends on who else is in the cohort"),
    (check_local_rule, local_rules.NoiseOfItsOwn, "draws from torch's global generator"),
    (check_local_rule, local_rules.ChangesTheModel, "changes what it was handed"),
    (check_local_rule, local_rules.RemembersItself, "the same rounds twice give different messages"),
    (check_local_rule, local_rules.ForgetsItsRows, "keeps []; expected ['model'], as init does"),
    (check_local_rule, local_rules.RowsOfEverybody, "name → tensor with 3 rows"),
    (check_local_rule, local_rules.OnePersonalModel, "personal models of (53,); expected [N, D], or None"),
    (check_local_rule, local_rules.BareMessages, "finish returns Tensor"),
    (check_local_rule, local_rules.NoPasses, "passes is 0; expected 1 or more passes over the steps"),
    (check_aggregator, parts.TooManyWeights, "weights returns (7,); expected one number a client [K]"),
    (check_aggregator, parts.LooksForRows, "aggregate(updates, state) raises AttributeError: 'Cohort' object has no"),
    (check_accountant, parts.UnderCharges, "a release calibrated to"),
    (check_accountant, parts.Generous, "spending the whole budget of epsilon"),
    (check_mechanism, parts.UnseededNoise, "noised draws from torch's global generator"),
    (check_accountant, parts.FreeSilence, "no noise costs 0"),
    (check_mechanism, parts.ThirdNorm, "clip_order is 3; expected 1 or 2"),
    (check_dataset, parts.LabelsFromOne, "y_train ranges from 1 to 2; expected labels 0 to 1"),
    (check_dataset, parts.WritesIntoRoot, "availability writes into the folder it reads"),
    (check_dataset, parts.HoldsNaN, "the train part holds non-finite numbers"),
    (check_dataset, parts.RaisesWithoutData, "load without data raises FileNotFoundError; expected DataError"),
    (check_model, parts.BatchNormModel, "BatchNorm1d) keeps batch statistics"),
    (check_model, parts.OneOutput, "the module returns (3, 1)"),
    (check_partition, populations.OneTooMany, "owners range from 1 to 1; allowed: 0 to 0, or -1"),
    (check_partition, populations.HalfOwners, "owners are float64 (600,); allowed: whole numbers, one an example"),
    (check_partition, populations.ListOfOwners, "owners are list; allowed: whole numbers, one an example (600)"),
    (check_partition, populations.ForgetsTheLast, "assign for 1 clients leaves client 0 without an example"),
    (
        check_partition,
        populations.OwnChance,
        "assign for 6 clients, called twice under one seed, gives different owners",
    ),
    (check_partition, populations.GlobalChance, "assign for 1 clients draws from NumPy's global generator"),
    (check_partition, populations.SortsLabels, "assign for 1 clients changes classes"),
    (check_partition, populations.NeverEnough, "declines every federation of the check (600 examples, 1 or 6 or 15"),
    (
        check_partition,
        populations.NoFloor,
        "assign of 14 examples to 15 clients is done, though some client gets nothing",
    ),
    (
        check_partition,
        populations.IgnoresItsFloor,
        "assign of min_size 600 to 15 clients is done, though a floor nobody",
    ),
    (check_partition, populations.Trips, "assign for 1 clients raises AttributeError: 'NoneType' object"),
    (check_partition, populations.Level, "has no assign(); expected the interface Partition"),
    (check_feature, populations.PeeksAtTheTest, "other test examples change the features of the rest"),
    (check_feature, populations.CentresEach, "other test examples change the features of the rest"),
    (check_feature, populations.InPlace, "fit_apply(train, test) changes train"),
    (check_feature, populations.DropsRows, "the train part is torch.float32 (89, 60); expected float32 (90, …)"),
    (check_feature, populations.Doubles, "the train part is torch.float64 (90, 60); expected float32 (90, …)"),
    (check_feature, populations.TrainOnly, "fit_apply(train, test) returns Tensor; expected a pair (train, test)"),
    (check_feature, populations.Priceless, "has no costly; expected True or False"),
    (check_budget, populations.UnboundedBudget, "bounds() is (0.0, inf); expected two finite numbers"),
    (check_budget, populations.Understates, "expected values within bounds(), 1 to 1.5"),
    (check_budget, populations.OneForAll, "draw(7, rng) returns float64 (1,); expected float64 (7,)"),
    (check_budget, populations.OtherBudgets, "draw(1, rng), called twice under one seed, gives different budgets"),
    (check_budget, populations.Undefined, "draw(1, rng) holds nan; expected values within bounds(), 1 to 2"),
    (check_algorithm, parts.not_an_algorithm, "is a Median; expected a dpflbench.interfaces.Algorithm"),
    (check_algorithm, parts.overspending, "selector: its plan overspends"),
    (check_algorithm, parts.unclipped, "is private and does not clip"),
    (check_algorithm, parts.nameless, "its name is '\\x1b[2J'"),
]


@pytest.mark.parametrize(("check", "part", "message"), CASES, ids=[f"{c.__name__}-{p.__name__}" for c, p, _ in CASES])
def test_a_part_that_breaks_a_rule_is_refused_by_one_line(check, part, message):
    line = refusal(check, part)
    assert message in line
    assert "; fix: " in line
    assert part.__name__ in line  # says who


def test_the_hostile_parts_are_variations_of_parts_that_pass():
    check_aggregator(parts.Median)
    check_transform(parts.Affine)
    check_dataset(parts.Dots)
    check_algorithm(parts.good)
    check_partition(populations.Deal)
    check_feature(populations.Centred)
    check_budget(populations.Level)
    check_local_rule(local_rules.Plain)
    check_local_rule(local_rules.OwnModel)


def test_a_mechanism_under_another_name_than_its_own_is_refused():
    part = Part("mechanisms", "gauss", parts.Gaussian, "p", "d", "1", "hostile.parts")
    assert "its name is 'gaussian'; expected 'gauss', as registered" in refusal(check_part, part)


def test_a_factory_that_makes_a_part_of_another_kind_is_refused():
    def hidden() -> parts.Median:
        """Make an aggregator, whatever was asked for."""
        return parts.Median()

    part = Part("selectors", "hidden", hidden, "p", "d", "1", "hostile.parts")
    assert "plugin 'p' of d 1: selector 'hidden': has no plan()" in refusal(check_part, part)


def test_a_part_that_cannot_be_built_twice_alike_is_refused():
    counter = iter(range(100))

    def counting() -> parts.Affine:
        """Make another part each time."""
        return parts.Affine(norm_local=bool(next(counter) % 2))

    assert "two builds with the same parameters differ" in refusal(check_transform, counting)


def test_a_conformance_error_is_an_error_the_user_can_fix():
    assert issubclass(ConformanceError, PluginError)
