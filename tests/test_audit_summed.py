"""The audit hears what a trust shows and no more: honest sums pass, and every way to show more is named."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import dpflbench.federation.local as local_module
from dpflbench.cli.audit import audit as audit_command
from dpflbench.errors import DpflbenchError
from dpflbench.federation.local import FullStep
from dpflbench.federation.trust import LocalTrust, SumTrust
from dpflbench.frame import PrivacyFrame
from dpflbench.interfaces import Trust
from dpflbench.judges.summed import audit_sum
from dpflbench_algorithms.accountants import GaussianDP, PureDP
from dpflbench_algorithms.dp_fedavg_central import dp_fedavg_central
from dpflbench_algorithms.idp_fedavg import idp_fedavg
from dpflbench_algorithms.mechanisms import Gaussian, Laplace
from dpflbench_algorithms.sampled_accountants import Renyi
from dpflbench_algorithms.weiavg import weiavg

app = typer.Typer()
app.command()(audit_command)


def heard(trust="central", unit="client", cohorts="exact", algorithm=None, trials=96, **given):
    """The names of white-box alarms, and whether the attack refuted the charge."""
    frame = PrivacyFrame(trust if isinstance(trust, Trust) else Trust(trust), unit, cohorts, FullStep())
    accountant = GaussianDP() if cohorts == "exact" else Renyi()
    found = audit_sum(algorithm or weiavg(), Gaussian(), accountant, frame, trials=trials, **given)
    return [test.name for test in found.noise.alarms], found.crossed.violated


@pytest.mark.parametrize(
    ("trust", "unit", "algorithm"),
    [
        (Trust("secure_sum", 0.5), "example", weiavg()),
        (Trust("central"), "client", dp_fedavg_central("adaptive")),
        (Trust("local"), "client", weiavg()),
    ],
)
def test_honest_sums_and_whole_clients_pass(trust, unit, algorithm):
    assert heard(trust, unit, algorithm=algorithm, trials=48) == ([], False)


def test_an_honest_poisson_cohort_passes():
    assert heard(cohorts="poisson", algorithm=idp_fedavg(), trials=8) == ([], False)


@dataclass(frozen=True)
class HandsOutRows(SumTrust):
    """Charges a sum, and lets the server see what it is made of."""

    def shown(self, *given):
        return replace(SumTrust.shown(self, *given), weights=None)

    def protect(self, mechanism, shown, draws):
        noisy = replace(shown, paid=shown.paid.at(np.full(len(shown.paid.scale), shown.scale)))
        return LocalTrust().protect(mechanism, noisy, draws)

    def combine(self, aggregator, updates, state, shown=None):
        return LocalTrust().combine(aggregator, updates, state)


@dataclass(frozen=True)
class TellsWhoIsFirst(SumTrust):
    """One row, but not the sum."""

    def protect(self, mechanism, shown, draws):
        return SumTrust.protect(self, mechanism, replace(shown, weights=np.array([1.0, 0.5, 0.5, 0.5])), draws)


@dataclass(frozen=True)
class ForgetsShares(SumTrust):
    """Adds the noise that budgets ask for, as if everybody were honest."""

    def shown(self, *given):
        found = SumTrust.shown(self, *given)
        return replace(found, scale=float(found.events[0].scale[0]))


def test_rows_under_a_secure_sum_are_seen():
    trust = Trust("secure_sum")
    alarms, violated = heard_with(HandsOutRows(trust), trust)
    assert "rows" in alarms
    assert violated  # each row weighs four times what was charged


def heard_with(hostile, trust, **given):
    frame = PrivacyFrame(trust, given.pop("unit", "client"), "exact", FullStep())
    found = audit_sum(weiavg(), Gaussian(), GaussianDP(), frame, trust=hostile, **({"trials": 96} | given))
    return [test.name for test in found.noise.alarms], found.crossed.violated


def test_a_row_that_tells_one_client_from_another_is_seen():
    alarms, _ = heard_with(TellsWhoIsFirst(Trust("central")), Trust("central"), trials=8)
    assert "rows" in alarms


def test_a_forgotten_share_of_the_noise_is_seen_by_whoever_knows_the_others():
    trust = Trust("secure_sum", 0.25)
    alarms, violated = heard_with(ForgetsShares(trust), trust)
    assert alarms == ["shares"]
    assert violated


@pytest.mark.parametrize("wrong", ["not at all", "twice as long", "every coordinate by itself"])
def test_a_wrong_clip_of_a_whole_client_is_seen(monkeypatch, wrong):
    real = local_module.clipped

    def badly(messages, bound, order):
        if wrong == "not at all":
            return messages, bound > 0
        if wrong == "twice as long":
            return real(messages, 2 * bound, order)
        return messages.clamp(-bound[:, None], bound[:, None]) * 2, bound > 0

    monkeypatch.setattr(local_module, "clipped", badly)
    assert heard()[1]


def test_what_is_not_attacked_is_refused_in_one_line():
    frame = PrivacyFrame(Trust("central"), "client", "exact", FullStep())
    with pytest.raises(DpflbenchError, match="under normal noise"):
        audit_sum(weiavg(), Laplace(), PureDP(), frame)
    with pytest.raises(DpflbenchError, match=r"defined for federation\.cohorts: poisson"):
        audit_sum(idp_fedavg(), Gaussian(), GaussianDP(), frame)


def test_the_command_audits_an_algorithm_in_its_frame(monkeypatch):
    import dpflbench.cli.audit as module

    monkeypatch.setattr(module, "audit_sum", lambda *a, **k: audit_sum(*a, **{**k, "trials": 24}))
    result = CliRunner().invoke(app, ["DP-FedAvg-central"])
    assert result.exit_code == 0, result.output
    assert "overheard" in result.output
    assert "0 violations" in result.output
