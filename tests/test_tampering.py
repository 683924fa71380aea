"""Fifty and more ways to tamper with honest results, each by somebody who makes all digests, chains and ids anew: every
one is named.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from honest import exchanged, of, remade

from dpflbench.catalogue import load
from dpflbench.judges.verify import rulings, verify
from dpflbench.results.cells import Results
from dpflbench.results.record import MSE, Record

BCS = "DPFL-BCS(probe_rounds=2)"


def put(values: Any, at: Any, value: Any) -> Any:
    """A copy of an array with one item, or of a mapping with one key, changed."""
    out = dict(values) if isinstance(values, dict) else values.copy()
    out[at] = value
    return out


def facts(**changes: Any) -> Callable[[Record], Record]:
    return lambda r: replace(r, facts={**r.facts, **changes})


def clients(name: str, change: Callable[[Any], Any]) -> Callable[[Record], Record]:
    return lambda r: replace(r, clients={**r.clients, name: change(r.clients[name])})


def curve(name: str, change: Callable[[Any], Any]) -> Callable[[Record], Record]:
    return lambda r: replace(r, rounds={**r.rounds, name: change(r.rounds[name])})


def final(name: str, change: Callable[[float], float]) -> Callable[[Record], Record]:
    return lambda r: replace(r, final={**r.final, name: change(r.final[name])})


def events(name: str, change: Callable[[Any], Any]) -> Callable[[Record], Record]:
    return lambda r: replace(r, events={**r.events, name: change(r.events[name])})


def rows(keep: Callable[[Record], Any]) -> Callable[[Record], Record]:
    return lambda r: replace(r, events={k: v[keep(r)] for k, v in r.events.items()})


def note(at: int, **changes: Any) -> Callable[[Record], Record]:
    return lambda r: replace(r, notes=[{**n, **changes} if i == at else n for i, n in enumerate(r.notes)])


def probe(**changes: Any) -> Callable[[Record], Record]:
    return lambda r: replace(
        r, notes=[{**n, "probe": {**n["probe"], **changes}} if n.get("probe") else n for n in r.notes]
    )


def config(section: str, **changes: Any) -> Callable[[Record], Record]:
    return lambda r: replace(r, config={**r.config, section: {**r.config[section], **changes}})


def mechanism(**changes: Any) -> Callable[[Record], Record]:
    return lambda r: facts(mechanism={**r.facts["mechanism"], **changes})(r)


def noise(**changes: Any) -> Callable[[Record], Record]:
    return lambda r: facts(noise={**r.facts["noise"], **changes})(r)


def swap_clients(r: Record) -> Record:
    """Two clients exchange all their participations; everything else follows them."""
    a, b = 0, 1
    client = r.events["client"].copy()
    client[r.events["client"] == a], client[r.events["client"] == b] = b, a
    return replace(r, events={**r.events, "client": client})


def shuffle_rounds(r: Record) -> Record:
    """The cohorts of two rounds change places."""
    first, second = (np.flatnonzero(r.events["round"] == t) for t in (0, 1))
    client = r.events["client"].copy()
    client[first], client[second] = r.events["client"][second], r.events["client"][first]
    return replace(r, events={**r.events, "client": client})


def all_utilities(r: Record) -> Record:
    """A better last round, told consistently, in steps no test set of a hundred examples can give."""
    better = curve("utility_global", lambda u: put(u, -1, u[-1] + 0.37))(r)
    best = max(better.rounds["utility_global"])
    return replace(
        better,
        final={
            **r.final,
            "utility_global": better.rounds["utility_global"][-1],
            "utility_mean_phi": better.rounds["utility_global"][-1],
            "best_utility_global": best,
            "best_round": float(better.rounds["round"][better.rounds["utility_global"].argmax()]),
        },
    )


def unprivate(r: Record) -> Record:
    """A private run as one that never promised anything: no budgets, no ledger."""
    n = len(r.clients["uses"])
    free = {"epsilon": np.full(n, np.inf), "epsilon_spent": np.full(n, np.inf), "delta": np.zeros(n)}
    return replace(
        r,
        private=False,
        events={},
        clients={**r.clients, **free},
        facts={**r.facts, "ledger_digest": "", "ledger_chain": r.facts["ledger_chain"][:0]},
    )


def called(status: Any, reason: str = "it was not good") -> Callable[[Record], Record]:
    return lambda r: replace(r, status=status, reason=reason)


def hidden(r: Record) -> Record:
    """A finished run called disqualified, its final values thrown away."""
    kept = {k: v for k, v in r.clients.items() if k not in ("utility_shared", "utility_personal")}
    return replace(r, status="disqualified", reason="overspent", final={}, clients={**kept, "uses": kept["uses"] - 1})


half = lambda v: v / 2  # noqa: E731
more = lambda v: v * 1.01  # noqa: E731
up = lambda v: v + 1.0  # noqa: E731
TAMPERINGS: dict[str, tuple[str, Callable[[Record], Record], str]] = {
    # the ledger
    "noise halved": ("DPSGD", events("scale", half), "cost is not that of its release"),
    "noise and cost halved": (
        "DPSGD",
        lambda r: events("cost", lambda c: c * 4)(events("scale", half)(r)),
        "overspend",
    ),
    "cost understated": ("DPSGD", events("cost", half), "cost is not that of its release"),
    "one release without noise": ("DPSGD", events("scale", lambda s: put(s, 0, 0.0)), "without noise"),
    "one scale changed": ("DPSGD", events("scale", lambda s: put(s, -1, s[-1] * 2)), "cost is not that of its release"),
    "sensitivity halved": ("DPSGD", events("sensitivity", half), "gradient sensitivity"),
    "loss sensitivity halved": (
        BCS,
        lambda r: events("sensitivity", lambda s: np.where(r.events["kind"] == 1, s / 2, s))(r),
        "loss sensitivity",
    ),
    "a sampling rate nobody had": ("DPSGD", events("rate", half), "gradient rate"),
    "steps that were not taken": ("DPSGD", events("steps", lambda s: s + 1), "gradient steps"),
    "a release dropped": ("DPSGD", rows(lambda r: slice(1, None)), "the cohort is 4"),
    "the last round dropped": ("DPSGD", rows(lambda r: r.events["round"] < 5), "5 were charged"),
    "a release twice": ("DPSGD", rows(lambda r: np.r_[0, np.arange(len(r.events["client"]))]), "releases of"),
    "releases in another order": (
        "DPSGD",
        rows(lambda r: np.arange(len(r.events["client"]))[::-1]),
        "not in the order",
    ),
    "clients exchanged": ("DPSGD", swap_clients, "not the cohort that uses and seed draw"),
    "cohorts exchanged": ("DPSGD", shuffle_rounds, "not the cohort that uses and seed draw"),
    "a column of another type": ("DPSGD", events("round", lambda t: t.astype(np.float64)), "releases are"),
    "losses dropped": (BCS, rows(lambda r: r.events["kind"] != 1), "its probe and cohort ask for"),
    "losses called gradients": (BCS, events("kind", lambda k: np.where(k == 1, 0, k)), "takes part twice"),
    "joint releases called gradients": ("literal", events("kind", lambda k: np.zeros_like(k)), "ask for"),
    "gradients called joint": ("DPSGD", events("kind", lambda k: k + 2), "without a probe"),
    # plans
    "probe removed": (BCS, lambda r: note(0, probe=None)(r), "without a probe"),
    "probe added": (
        "DPSGD",
        note(0, probe={"loss_bound": 2.0, "share": 0.1, "after_step": False, "joint": False}),
        "its probe and cohort ask for",
    ),
    "loss bound halved": (BCS, probe(loss_bound=0.5), "loss sensitivity"),
    "loss bound of a joint probe": ("literal", probe(loss_bound=0.5), "joint sensitivity"),
    "a second loss nobody released": (
        BCS,
        lambda r: probe(after_step=not r.notes[0]["probe"]["after_step"])(r),
        "its probe and cohort ask for",
    ),
    "joint instead of apart": (BCS, probe(joint=True), "its probe and cohort ask for"),
    "another share for the losses": (BCS, probe(share=0.2), "share"),
    "clip factors forgotten": (
        "IDP-clipping",
        lambda r: replace(r, notes=[{k: v for k, v in n.items() if k != "clip_factor"} for n in r.notes]),
        "gradient sensitivity",
    ),
    "clip factors doubled": (
        "IDP-clipping",
        lambda r: note(0, clip_factor=r.notes[0]["clip_factor"] * 2)(r),
        "gradient sensitivity",
    ),
    "clip factors invented": ("DPSGD", note(0, clip_factor=np.full(8, 0.5)), "gradient sensitivity"),
    "a plan that starts later": (BCS, note(1, round=3), "plans of the run"),
    "a plan that lasts longer": (BCS, note(0, horizon=3), "plans of the run"),
    "no plans": ("DPSGD", lambda r: replace(r, notes=[]), "plans of the run"),
    # budgets and spending
    "epsilon raised": ("DPSGD", clients("epsilon", lambda e: e * 1.5), "configuration and seed give"),
    "delta raised": ("DPSGD", clients("delta", lambda d: d * 10), "configuration and seed give"),
    "spent understated": ("DPSGD", clients("epsilon_spent", lambda e: e * 0.9), "recomputed"),
    "spent not a number": ("DPSGD", clients("epsilon_spent", lambda e: e * np.nan), "recomputed"),
    "uses changed": ("DPSGD", clients("uses", lambda u: put(put(u, 0, u[0] + 1), 1, u[1] - 1)), "recorded uses"),
    "uses of a run without privacy": ("FedSGD", clients("uses", lambda u: put(u, 0, u[0] + 1)), "uses sum to"),
    "sizes moved between clients": (
        "FedSGD",
        clients("n_examples", lambda n: put(put(n, 0, n[0] + 1), 1, n[1] - 1)),
        "n_examples differs",
    ),
    "a size invented": ("DPSGD", clients("n_examples", lambda n: put(n, 0, n[0] + 50)), "clients hold"),
    "held-out sizes": ("DPSGD", clients("n_holdout", lambda n: n * 2), "n_holdout differs"),
    # what it calls itself
    "private called not private": ("WeiAvg", lambda r: replace(r, private=False), "private is False"),
    "private without a trace": ("WeiAvg", unprivate, "private is False"),
    "not private called private": ("FedSGD", lambda r: replace(r, private=True), "private is True"),
    "a finite epsilon without privacy": ("FedSGD", clients("epsilon", lambda e: np.ones(8)), "finite epsilon"),
    "another algorithm's name": ("DPSGD", lambda r: replace(r, algorithm="DPFL-BCS"), "its plugin says DPSGD"),
    "another metric": ("DPSGD", lambda r: replace(r, metric=MSE), "is not the metric"),
    "metric turned round": (
        "DPSGD",
        lambda r: replace(r, metric=replace(r.metric, higher_is_better=False)),
        "is not the metric",
    ),
    "mechanism renamed": ("DPSGD", mechanism(name="laplace"), "noise is laplace"),
    "law renamed": ("DPSGD", mechanism(law="laplace"), "noise of law laplace"),
    "accountant renamed": ("DPSGD", mechanism(accountant="pure"), "under pure"),
    "noise of another run": ("DPSGD", noise(run="0" * 20), "its noise is that of"),
    "noise shared with all runs": ("DPSGD", noise(run=""), "its noise is that of ''"),
    "a key called pinned": ("DPSGD", noise(origin="pinned"), "its noise key is pinned"),
    "a key too short": ("DPSGD", noise(key="00"), "no noise key"),
    "clip norm restated": ("DPSGD", mechanism(clip_norm=0.1), "clipped to 0.1"),
    # how it ended
    "done called failed": ("DPSGD", called("failed"), "yet there are final values"),
    "done called disqualified": ("DPSGD", hidden, "6 were charged"),
    "done with a reason": ("DPSGD", called("done"), "it has a reason why not"),
    "diverged without a reason": ("DPSGD", called("diverged", ""), "without a reason"),
    "no final values": ("DPSGD", lambda r: replace(r, final={}), "no facts or final values"),
    "no ledger": ("DPSGD", lambda r: replace(r, events={}), "no ledger"),
    # utility
    "final utility": ("DPSGD", final("utility_global", up), "final.utility_global"),
    "final loss": ("DPSGD", final("loss", half), "final.loss"),
    "mean over transforms": ("DPSGD", final("utility_mean_phi", up), "final.utility_mean_phi"),
    "personal utility": ("PRIVATEFL", final("utility_personal", up), "final.utility_personal"),
    "personal utility of one client": (
        "DPSGD",
        clients("utility_personal", lambda u: put(u, 0, 100.0)),
        "nothing personal",
    ),
    "client utilities no shard can have": ("PRIVATEFL", clients("utility_personal", more), "held-out examples"),
    "the best round": ("DPSGD", final("best_round", lambda t: t - 1), "final.best_round"),
    "the best utility": ("DPSGD", final("best_utility_global", up), "final.best_utility_global"),
    "the whole curve": ("DPSGD", all_utilities, "share of 100 test examples"),
    "the start of the curve": (
        "DPSGD",
        curve("utility_global", lambda u: put(u, 0, u[0] + 1)),
        "before the first round",
    ),
    "rounds that were not evaluated": ("DPSGD", curve("round", lambda t: t * 2), "evaluated after other rounds"),
    "a negative loss": ("DPSGD", curve("loss", lambda v: put(v, 1, -1.0)), "loss that is negative"),
    # facts
    "dimension": ("WeiAvg", facts(dim=3), "dim differs"),
    "dimension of the transform": ("PRIVATEFL", facts(phi_dim=1), "phi_dim differs"),
    "training examples": ("WeiAvg", facts(n_train=99), "clients hold"),
    "test examples": ("WeiAvg", facts(n_test=1000), "n_test differs"),
    "classes": ("WeiAvg", facts(n_classes=2), "n_classes differs"),
    "reference utilities": ("WeiAvg", facts(references={"predict_the_mean": 0.0}), "references differs"),
    "initial model": ("WeiAvg", facts(initial_model="0" * 64), "initial_model differs"),
    "final model": ("WeiAvg", facts(final_model="x"), "final_model is no digest"),
    "split": ("WeiAvg", facts(split_digest="0" * 64), "split_digest differs"),
    "data": ("WeiAvg", facts(data_digest="0" * 64), "data_digest differs"),
    # settings and sources
    "clip of the configuration": ("DPSGD", config("privacy", clip=0.5), "other privacy settings"),
    "learning rate": ("DPSGD", config("federation", weight_decay=0.1), "other federation settings"),
    "evaluation": ("DPSGD", config("evaluate", every=2), "other evaluate settings"),
    "seed": ("FedSGD", lambda r: replace(r, config={**r.config, "seed": 1}), "filled by a run of seed 1"),
    "parameters": (BCS, config("algorithm", probe_rounds=3), "other parameters than the suite's"),
    "harness of one run": (
        "WeiAvg",
        lambda r: replace(r, plugins=put(r.plugins, "dpflbench", "0" * 16)),
        "source of dpflbench differs",
    ),
    "mechanism of one run": (
        "WeiAvg",
        lambda r: replace(r, plugins=put(r.plugins, "mechanism gaussian", "dpflbench 0")),
        "source of mechanism gaussian differs",
    ),
    "a source not named": (
        "WeiAvg",
        lambda r: replace(r, plugins={k: v for k, v in r.plugins.items() if k != "mechanism gaussian"}),
        "sources of mechanism gaussian",
    ),
}


def found(results: Results) -> list[str]:
    return [p for f in verify(results, load()) for p in f.problems]


def test_there_are_more_than_fifty():
    assert len(TAMPERINGS) > 75


@pytest.mark.parametrize("name", TAMPERINGS)
def test_a_tampered_record_is_wrong_and_why_is_said(honest, name):
    algorithm, change, words = TAMPERINGS[name]
    record = of(honest, algorithm, mechanism="gaussian")
    forged = remade(change(record))
    problems = found(exchanged(honest, record.id, forged))
    assert any(words in p for p in problems), problems


def test_the_ruling_on_a_tampered_run_is_wrong_and_its_neighbours_stand(honest):
    record = of(honest, "DPSGD")
    forged = remade(TAMPERINGS["spent understated"][1](record))
    words = {run: v.verdict for run, v in rulings(exchanged(honest, record.id, forged), load()).items()}
    assert words.pop(forged.id) == "wrong"
    assert set(words.values()) == {"ok"}


def test_an_edited_record_whose_chain_was_forgotten_breaks_it_at_the_round_that_was_edited(honest):
    record = of(honest, "DPSGD")
    scale = put(record.events["scale"], np.flatnonzero(record.events["round"] == 3)[0], 1.0)
    changed = replace(record, events={**record.events, "scale": scale})
    problems = found(Results(honest.manifest, {**honest.records, record.id: changed}))
    assert any("chain breaks in round 3" in p for p in problems)
    assert any("ledger digest" in p for p in problems)


# ---------------------------------------------------------------- the table


def cells(results: Results, change: Callable[[list[Any]], list[Any]]) -> Results:
    return Results(replace(results.manifest, cells=change(list(results.manifest.cells))), results.records)


def impossible(c: Any) -> Any:
    reason = "DPSGD is defined for laplace noise only, not for gaussian"
    return replace(c, run=None, reason=reason) if c.algorithm == "DPSGD" else c


TABLES: dict[str, tuple[Callable[[list[Any]], list[Any]], str]] = {
    "a cell dropped": (lambda cs: cs[1:], "1 cells are not listed"),
    "an algorithm dropped": (lambda cs: [c for c in cs if c.algorithm != "WeiAvg"], "4 cells are not listed"),
    "called impossible": (lambda cs: [impossible(c) for c in cs], "called impossible"),
    "another reason": (
        lambda cs: [replace(c, reason="the dog ate it") if c.run is None else c for c in cs],
        "it is empty because DPSGD is defined for gaussian",
    ),
    "impossible and filled": (
        lambda cs: [replace(c, run=cs[0].run, reason="") if c.run is None else c for c in cs],
        "filled, and yet DPSGD is defined for gaussian",
    ),
    "a cell twice": (lambda cs: [*cs, cs[0]], "1 cells are listed twice"),
    "a cell of nowhere": (lambda cs: [*cs, replace(cs[0], seed=7)], "listed and not in the suite"),
    "a label of somebody else": (
        lambda cs: [replace(c, algorithm="Mine") if c.algorithm == "WeiAvg" else c for c in cs],
        "listed and not in the suite",
    ),
    "cells exchanged": (
        lambda cs: [replace(c, run=cs[2].run) if c is cs[1] else c for c in cs],
        "filled by a run of WeiAvg",
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_tampered_table_is_wrong_and_why_is_said(honest, name):
    change, words = TABLES[name]
    problems = found(cells(honest, change))
    assert any(words in p for p in problems), problems


def test_a_table_that_is_not_its_suite_s_spoils_the_ruling_on_every_run(honest):
    words = {v.verdict for v in rulings(cells(honest, TABLES["a cell dropped"][0]), load()).values()}
    assert words == {"wrong"}


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("seeds", [0, 1], "cells are not listed"),
        (
            "privacy",
            {"mechanism": "gaussian", "clip": 9.0, "epsilon": {"kind": "uniform", "low": 0.5, "high": 4.0}},
            "other privacy settings",
        ),
        ("axes", {"privacy.mechanism": ["gaussian", "laplace"]}, "listed and not in the suite"),
        ("algorithms", [{"label": "DPSGD", "use": "DPSGD", "with": {}}], "listed and not in the suite"),
        ("axes", 3, "the suite in the manifest"),
    ],
)
def test_an_edited_suite_does_not_fit_its_cells(honest, key, value, words):
    manifest = replace(honest.manifest, suite={**honest.manifest.suite, key: value})
    problems = found(Results(manifest, honest.records))
    assert any(words in p for p in problems), problems


# ---------------------------------------------------------------- not wrong, and not verified either


def test_sources_that_are_not_this_installation_s_are_a_doubt_and_no_problem(honest):
    again = honest
    for run, record in honest.records.items():
        again = exchanged(again, run, remade(replace(record, plugins={**record.plugins, "dpflbench": "0" * 16})))
    findings = list(verify(again, load()))
    assert [f.problems for f in findings if f.problems] == []
    assert {f.ruling.verdict for f in findings} == {"unverified"}
    assert {f.doubts for f in findings} == {("made with other sources than this installation's: dpflbench",)}


def test_an_algorithm_that_is_not_installed_leaves_its_runs_unverified_and_no_others(honest, catalogue):
    parts = {k: v for k, v in catalogue.parts["algorithms"].items() if k != "WeiAvg"}
    without = replace(catalogue, parts={**catalogue.parts, "algorithms": parts})
    words = {f.label.split(" ")[0]: f.ruling.verdict for f in verify(honest, without)}
    assert words.pop("WeiAvg") == "unverified"
    assert set(words.values()) == {"ok"}


def test_a_mechanism_that_is_not_installed_leaves_its_runs_unverified(honest, catalogue):
    parts = {k: v for k, v in catalogue.parts["mechanisms"].items() if k != "laplace"}
    without = replace(catalogue, parts={**catalogue.parts, "mechanisms": parts})
    findings = list(verify(honest, without))
    assert not [f.problems for f in findings if f.problems]
    assert {f.ruling.verdict for f in findings if "laplace" in f.label} == {"unverified"}
