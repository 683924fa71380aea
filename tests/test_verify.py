"""Verification believes nothing: honest results pass, and every way of cheating we could think of is named."""

import re
import time
from dataclasses import dataclass, replace

import numpy as np
import pytest
import typer
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import PLDAccountant
from honest import of, remade, results_of
from places import place
from releases import event
from typer.testing import CliRunner

from dpflbench.catalogue import Catalogue, Part, load
from dpflbench.cli.verify import verify as verify_command
from dpflbench.errors import DpflbenchError
from dpflbench.execution.attempt import execute
from dpflbench.federation.schedule import even_uses
from dpflbench.interfaces import Plan
from dpflbench.judges.second_accountant import gaussian_epsilon, laplace_epsilon, opinion
from dpflbench.judges.verify import verify
from dpflbench.planning import plan_suite
from dpflbench.privacy.gaussian_dp import epsilon_of
from dpflbench.privacy.ledger import KINDS
from dpflbench.results.cells import Results
from dpflbench.results.store import Store
from dpflbench.suite_reading import check, normalise
from dpflbench_algorithms.accountants import GaussianDP
from dpflbench_algorithms.mechanisms import Gaussian

app = typer.Typer()
app.command()(verify_command)


@pytest.fixture
def results(honest):
    return honest


def problems_of(results, record, **changes):
    """What verify says when one record is exchanged for a changed one."""
    changed = replace(record, **changes)
    found = list(verify(replace_results(results, {record.id: changed}), load()))
    return [p for f in found for p in f.problems]


def finding_of(results, record, **changes):
    """The finding on a record that is exchanged for a changed one."""
    changed = replace_results(results, {record.id: replace(record, **changes)})
    return next(f for f in verify(changed, load()) if f.run == record.id)


def replace_results(results, records):
    return Results(results.manifest, {**results.records, **records})


def signed(record, **events):
    """Events changed by somebody who also renews the ledger's digest and chain."""
    again = remade(replace(record, events={**record.events, **events}))
    return {"events": again.events, "facts": again.facts}


def test_honest_results_have_no_findings(results):
    findings = list(verify(results, load()))
    assert [f.problems for f in findings if f.problems] == []
    assert len(findings) == len(results.records)
    kinds = {int(k) for r in results.records.values() if r.private for k in np.unique(r.events["kind"])}
    assert kinds == {0, 1, 2}


def test_less_noise_than_charged_for_is_overspending(results):
    """Half the scale: four times the cost of a Gaussian, twice that of a Laplace release."""
    for mechanism in ("gaussian", "laplace"):
        record = of(results, "WeiAvg", mechanism=mechanism)
        scale = record.events["scale"] / 2
        cost = record.events["cost"] * (4 if mechanism == "gaussian" else 2)
        found = problems_of(results, record, **signed(record, scale=scale, cost=cost))
        assert any("overspend" in p for p in found)
        assert any("recorded epsilon" in p for p in found)
        found = problems_of(results, record, **signed(record, scale=scale))
        assert any("cost is not that of its release" in p for p in found)


def test_a_forged_epsilon_does_not_help(results):
    record = of(results, "DPSGD")
    events = signed(record, scale=record.events["scale"] / 2, cost=record.events["cost"] * 4)
    found = problems_of(
        results, record, **events, clients={**record.clients, "epsilon_spent": record.clients["epsilon"] * 0.9}
    )
    assert any("overspend" in p for p in found)
    found = problems_of(
        results, record, clients={**record.clients, "epsilon_spent": record.clients["epsilon_spent"] * 0.99}
    )
    assert any("recomputed" in p for p in found)
    found = problems_of(results, record, clients={**record.clients, "epsilon_spent": np.full(8, np.nan)})
    assert any("recomputed" in p for p in found)


def test_a_forged_budget_is_drawn_again_from_configuration_and_seed(results):
    record = of(results, "DPSGD")
    for name in ("epsilon", "delta"):
        found = problems_of(results, record, clients={**record.clients, name: record.clients[name] * 1.5})
        assert any("configuration and seed give" in p for p in found)
        assert any(f"{name} differs between" in p for p in found)  # and its neighbours in the column disagree


def test_removed_or_repeated_releases_are_missed(results):
    record = of(results, "DPSGD")
    fewer = {k: v[1:] for k, v in record.events.items()}
    found = problems_of(results, record, **signed(record, **fewer))
    assert any("round 0: 3 clients take part, the cohort is 4" in p for p in found)
    assert any("recorded uses" in p for p in found)
    client = record.events["client"].copy()
    client[1] = client[0]
    assert any("takes part twice" in p for p in problems_of(results, record, **signed(record, client=client)))
    found = problems_of(results, record, events=fewer)
    assert any("ledger digest" in p for p in found)


def test_a_sensitivity_without_its_factor_two_is_noticed(results):
    for algorithm, kind in (("DPSGD", 0), ("IDP-clipping", 0), ("DPFL-BCS(probe_rounds=2)", 1), ("literal", 2)):
        record = of(results, algorithm)
        true = record.events["sensitivity"]
        halved = signed(record, sensitivity=np.where(record.events["kind"] == kind, true / 2, true))
        assert any(f"{KINDS[kind]} sensitivity" in p for p in problems_of(results, record, **halved))


def test_a_loss_outside_the_cohort_and_a_loss_nobody_asked_for_are_noticed(results):
    record = of(results, "DPFL-BCS(probe_rounds=2)")
    rows = np.flatnonzero(record.events["kind"] == 1)
    taking_part = set(record.events["client"][record.events["round"] == 0].tolist())
    stranger = next(n for n in range(8) if n not in taking_part)
    client = record.events["client"].copy()
    client[rows[0]] = stranger
    assert any("does not take part" in p for p in problems_of(results, record, **signed(record, client=client)))
    notes = [{k: v for k, v in note.items() if k != "probe"} for note in record.notes]
    assert any("without a probe" in p for p in problems_of(results, record, notes=notes))
    assert any("plans of the run" in p for p in problems_of(results, record, notes=[]))


def test_an_edited_configuration_breaks_the_run_id(results):
    record = of(results, "DPSGD")
    config = {**record.config, "privacy": {**record.config["privacy"], "clip": 0.5}}
    found = problems_of(results, record, config=config)
    assert any("run id" in p for p in found)
    assert any("gradient sensitivity" in p for p in found)
    assert any("other privacy settings" in p for p in found)


def test_a_record_in_a_foreign_cell_is_noticed(results):
    generous, strict = (of(results, "DPSGD", **{"epsilon.high": high}) for high in (8.0, 4.0))
    manifest = replace(
        results.manifest,
        cells=[replace(c, run=generous.id) if c.run == strict.id else c for c in results.manifest.cells],
    )
    found = [p for f in verify(Results(manifest, results.records), load()) for p in f.problems]
    assert any("filled by a run with other privacy settings" in p for p in found)
    weiavg = of(results, "WeiAvg", **{"epsilon.high": 4.0})
    manifest = replace(
        results.manifest, cells=[replace(c, run=weiavg.id) if c.run == strict.id else c for c in results.manifest.cells]
    )
    found = [p for f in verify(Results(manifest, results.records), load()) for p in f.problems]
    assert any("filled by a run of WeiAvg" in p for p in found)


@pytest.mark.parametrize("fact", ["initial_model", "split_digest", "data_digest"])
def test_runs_of_a_column_that_start_elsewhere_are_not_matched(results, fact):
    record = of(results, "WeiAvg")
    found = problems_of(results, record, facts={**record.facts, fact: "0" * 64})
    assert any(f"{fact} differs between" in p for p in found)


def test_a_release_without_noise_and_columns_out_of_range_are_noticed(results):
    record = of(results, "DPSGD")
    scale = record.events["scale"].copy()
    scale[0] = 0.0
    assert any("without noise" in p for p in problems_of(results, record, **signed(record, scale=scale)))
    for name, value in (
        ("client", 8),
        ("client", -1),
        ("round", 6),
        ("kind", len(KINDS)),
        ("sensitivity", np.nan),
        ("scale", -1.0),
        ("rate", 1.5),
        ("steps", 0),
    ):
        column = record.events[name].copy()
        column[3] = value
        assert any("release 3" in p for p in problems_of(results, record, **signed(record, **{name: column}))), name
    assert any("columns" in p for p in problems_of(results, record, events={"client": np.zeros(3)}))


def test_an_unknown_mechanism_and_an_odd_record_are_findings_not_crashes(results):
    record = of(results, "DPSGD")
    for name, accountant in (("homebrew", "gdp"), ("gaussian", "homebrew")):
        noise = {"name": name, "accountant": {"name": accountant}}
        config = {**record.config, "privacy": {**record.config["privacy"], "mechanism": noise}}
        finding = finding_of(results, record, config=config)
        assert any("'homebrew'; allowed: " in p for p in finding.doubts)
        assert any("other privacy settings" in p for p in finding.problems)
    for changes in (
        {"config": {}},
        {"clients": {}},
        {"facts": {"data_digest": 3}},
        {"config": {"privacy": 3, "seed": "x"}},
    ):
        assert any("cannot be checked" in p for p in problems_of(results, record, **changes))
    assert any("no ledger" in p for p in problems_of(results, record, events={}))


def test_a_release_of_another_rate_or_of_more_steps_than_the_local_update_makes_is_noticed(results):
    record = of(results, "DPSGD")
    for name, value in (("rate", 0.5), ("steps", 2)):
        column = np.full_like(record.events[name], value)
        found = problems_of(results, record, **signed(record, **{name: column}))
        assert any(f"gradient {name}" in p for p in found)
        assert any("has no proof for the releases" in p for p in found)


def test_the_summary_names_the_two_accountants_that_agreed(results):
    found = {f.run: f for f in verify(results, load())}
    record = of(results, "DPSGD")
    assert found[record.id].accountants[0] == "gdp"
    assert found[record.id].accountants[1].startswith("dp-accounting ")
    assert found[record.id].summary.endswith(f"by gdp and {found[record.id].accountants[1]}")
    assert found[of(results, "FedSGD").id].accountants == ()


# ---------------------------------------------------------------- runs that did not end well


@dataclass(frozen=True)
class Spendthrift:
    """Plans `good` rounds at a tenth of every budget, then asks for ten times what is left."""

    good: int = 2

    def plan(self, view, rng):
        left = view.setup.rounds - view.round
        horizon = min(self.good, left) if view.round < self.good else left
        share = 0.1 / horizon if view.round < self.good else 10.0
        uses = even_uses(view.setup.n_clients, horizon * view.setup.cohort_size, rng)
        return Plan(uses=uses, horizon=horizon, cost=view.left * share)


@dataclass(frozen=True)
class Breaking:
    """Fails in the middle of a round, when its clients have paid."""

    round: int = 0

    def init(self, setup):
        return None

    def aggregate(self, updates, state):
        if updates.round == self.round:
            raise RuntimeError("no more")
        return updates.values.mean(0), None


@dataclass(frozen=True)
class Exploding(Breaking):
    """Steps so far that the model is no longer finite."""

    def aggregate(self, updates, state):
        direction = updates.values.mean(0)
        return direction.fill_(3e38) if updates.round == self.round else direction, None


def ended(tiny, catalogue, kind, name, factory, **given):
    """The folder and the one finding on a run with a stranger's selector or aggregator."""
    part = Part(kind, name, factory, "stranger", "stranger", "1.0", "dpflbench_algorithms.parts")
    own = Catalogue({**catalogue.parts, kind: {**catalogue.parts[kind], name: part}})
    algorithm = {"use": "compose", "as": "odd", "with": {kind[:-1]: {"name": name, **given}}}
    far = {**tiny["federation"], "lr": {"initial": 8.0, "decay": 20}}
    results = results_of(normalise({**tiny, "federation": far, "algorithms": [algorithm]}), own)
    (record,) = results.records.values()
    (finding,) = verify(results, own)
    return results, record, finding


@pytest.mark.parametrize("good", [0, 2])
def test_a_disqualified_run_is_called_that_whenever_it_was(tiny, catalogue, good):
    _, record, finding = ended(tiny, catalogue, "selectors", "spendthrift", Spendthrift, good=good)
    assert record.status == "disqualified"
    assert len(record.events["client"]) == 4 * good
    assert finding.problems == ()
    assert finding.status == "disqualified"
    assert "of the noise" not in finding.summary
    assert "is spent" in finding.summary  # the ledger's own words


@pytest.mark.parametrize("at", [0, 1, 3])
@pytest.mark.parametrize(("factory", "status"), [(Breaking, "failed"), (Exploding, "diverged")])
def test_a_run_that_broke_off_after_charging_is_called_that_and_no_finding(tiny, catalogue, factory, status, at):
    _, record, finding = ended(tiny, catalogue, "aggregators", "breaking", factory, round=at)
    assert record.status == status
    assert len(np.unique(record.events["round"])) == at + 1  # the round that broke is paid for
    assert finding.problems == ()
    assert finding.status == status


def test_a_disqualified_run_is_a_line_of_its_own_in_the_command_and_in_its_count(tiny, catalogue, tmp_path):
    results, _, _ = ended(tiny, catalogue, "selectors", "spendthrift", Spendthrift)
    write(results, tmp_path)
    shown = CliRunner().invoke(app, [str(tmp_path)])  # here nobody has installed that selector
    assert shown.exit_code == 3
    assert "ok  " not in shown.output
    assert "0 runs stand a recount, 0 findings, 1 disqualified, 1 that nobody here can price" in shown.output


# ---------------------------------------------------------------- a stranger's noise


class Homebrew(Gaussian):
    """Normal noise under a name of its own."""

    name = "homebrew"
    accountant = "homebrew_dp"


class HomebrewDP(GaussianDP):
    """Its own accountant, with nobody else to ask."""

    name = "homebrew_dp"

    def second_opinion(self, events, client, delta):
        return None


class WithFriend(GaussianDP):
    """The same with a second opinion."""

    name = "homebrew_dp"

    def second_opinion(self, events, client, delta):
        return "a friend", GaussianDP().second_opinion(events, client, delta)[1]


class Generous(GaussianDP):
    """Charges half of what releases cost, and has a friend who finds that right."""

    name = "homebrew_dp"

    def cost(self, event):
        return super().cost(event) / 2

    def scale(self, cost, event):
        return super().scale(2 * cost, event)

    def second_opinion(self, events, client, delta):
        total = np.stack([np.bincount(client, self.cost(events)[:, 0], len(delta))], axis=1)
        return "a friend", self.epsilon(total, delta)


def homebrewed(tiny, catalogue, accountant):
    """A catalogue with a stranger's noise and accountant, and what a suite of theirs comes to."""

    def with_part(parts, kind, name, factory):
        part = Part(kind, name, factory, "stranger", "stranger", "1.0", "dpflbench_algorithms.parts")
        return {**parts, kind: {**parts[kind], name: part}}

    parts = with_part(catalogue.parts, "mechanisms", "homebrew", Homebrew)
    own = Catalogue(with_part(parts, "accountants", "homebrew_dp", accountant))
    problems = []
    body = {**tiny, "privacy": {**tiny["privacy"], "mechanism": "homebrew"}, "algorithms": ["WeiAvg"]}
    planned = plan_suite(check(normalise(body), "tiny.yaml", problems), own, None)
    return own, planned, {run.id: execute(run, own, place()) for run in planned.runs.values()}


def test_an_accountant_that_charges_too_little_is_wrong_whoever_agrees_with_it(tiny, catalogue):
    own, planned, records = homebrewed(tiny, catalogue, Generous)
    (finding,) = verify(Results(planned.manifest, records), own)
    assert finding.accountants == ("homebrew_dp", "a friend")
    (problem,) = finding.problems
    assert re.fullmatch(
        r"client \d+: epsilon [\d.]+ by homebrew_dp, where its noise gives away delta .* and not 1e-05", problem
    )


@pytest.mark.parametrize(
    ("accountant", "who"), [(HomebrewDP, ("homebrew_dp",)), (WithFriend, ("homebrew_dp", "a friend"))]
)
def test_a_stranger_s_mechanism_that_brings_its_accountant_passes(tiny, catalogue, accountant, who):
    own, planned, records = homebrewed(tiny, catalogue, accountant)
    findings = list(verify(Results(planned.manifest, records), own))
    assert [(f.problems, f.accountants) for f in findings] == [((), who)]
    assert findings[0].summary.endswith("by homebrew_dp alone" if len(who) == 1 else "by homebrew_dp and a friend")
    assert findings[0].ruling.verdict == ("unverified" if len(who) == 1 else "ok")
    record = next(iter(records.values()))
    less = replace(record, events={**record.events, "scale": record.events["scale"] / 2})
    problems = next(iter(verify(Results(planned.manifest, {record.id: less}), own))).problems
    assert any("overspend by homebrew_dp" in p for p in problems)


# ---------------------------------------------------------------- the command


def write(results, folder):
    store = Store(folder)
    store.write_manifest(results.manifest)
    for record in results.records.values():
        store.write(record)
    return store


def test_the_command_says_one_line_a_run_and_exits_zero_or_one(results, tmp_path):
    store = write(results, tmp_path)
    shown = CliRunner().invoke(app, [str(tmp_path)])
    assert shown.exit_code == 0, shown.output
    assert shown.output.count("ok  ") == len(results.records)
    assert f"Verified: {len(results.records)} runs stand a recount" in shown.output
    record = of(results, "DPSGD")
    events = signed(record, scale=record.events["scale"] / 2)
    store.write(replace(record, **events, reason="\x1b[2J"))
    shown = CliRunner().invoke(app, [str(tmp_path), "--quiet"])
    assert shown.exit_code == 1
    assert "FAIL" in shown.output
    assert "WRONG: " in shown.output
    assert "\x1b" not in shown.output


def test_a_damaged_record_fails_and_a_missing_one_is_said_to_be_missing(results, tmp_path):
    store = write(results, tmp_path)
    first, second = list(results.records)[:2]
    store.path(first).unlink()
    shown = CliRunner().invoke(app, [str(tmp_path)])
    assert shown.exit_code == 3
    assert "NOT WHOLLY VERIFIED" in shown.output
    assert "1 not there (yet)" in shown.output
    text = store.path(second).read_text()
    store.path(second).write_text(text.replace('"status": "done"', '"status": "diverged"'))
    shown = CliRunner().invoke(app, [str(tmp_path)])
    assert shown.exit_code == 1
    assert "does not match its digest" in shown.output


def test_a_folder_that_holds_no_results_is_the_users_to_fix(tmp_path):
    shown = CliRunner().invoke(app, [str(tmp_path)])
    assert isinstance(shown.exception, DpflbenchError)


# ---------------------------------------------------------------- the second opinion itself


def test_the_second_opinion_agrees_with_our_accountant_and_with_a_privacy_loss_distribution():
    releases = ((0.02, 30), (0.05, 10))
    mu = np.sqrt(30 * 0.02**2 + 10 * 0.05**2)
    found = gaussian_epsilon(releases, 1e-5)
    assert found == pytest.approx(float(epsilon_of(mu, 1e-5)), abs=1e-9)
    accountant = PLDAccountant()
    for ratio, count in releases:
        accountant.compose(GaussianDpEvent(1 / ratio), count)
    assert found == pytest.approx(accountant.get_epsilon(1e-5), abs=2e-3)  # discretised, pessimistic
    assert gaussian_epsilon((), 1e-5) == 0.0
    assert gaussian_epsilon(((0.1, 1),), 0.0) == np.inf
    assert laplace_epsilon(((0.25, 3), (0.1, 2)), 0.0) == pytest.approx(0.95)


def test_a_quarter_of_a_thousand_clients_takes_a_fraction_of_a_second():
    rng = np.random.default_rng(0)
    client = np.repeat(np.arange(250), 40)
    ratio = np.repeat(rng.uniform(0.01, 0.2, 250), 40)
    start = time.process_time()
    _, spent = opinion(gaussian_epsilon, event(ratio, 1.0), client, np.full(250, 1e-5))
    assert time.process_time() - start < 5  # 0.4 s on a quiet core
    np.testing.assert_allclose(spent, epsilon_of(ratio[::40] * np.sqrt(40), 1e-5), rtol=1e-8)
