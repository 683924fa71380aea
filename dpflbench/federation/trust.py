"""Trust: where noise is added, and what the server sees of it. Between local update and aggregator.

`local`: each client noises its own message for its own budget, and the server sees the rows. Under `secure_sum` and
`central` it sees Σ a_n m_n + Z and nothing else: messages are added up, then noised, and no row is ever handed out. The
weights a_n are fixed by public facts before anything is computed; an aggregator that looks at rows has none.

**What a sum costs (exact cohorts).** Whatever is protected at client n moves the sum by at most s_n = |a_n| Δ_n, where
Δ_n is the sensitivity of its message, and nothing else of the sum depends on it. So the sum is ONE release of
sensitivity s_n over the noise Z, for every client with another s_n: each is charged its own. Client n's share of its
budget asks for noise of scale scale_n on a message of sensitivity Δ_n, hence for s_n scale_n / Δ_n on the sum, and Z
has the largest that anybody asks for (the most demanding member sets everybody's noise). The others get more noise than
they need; the ledger charges what was spent, and loose clients keep what they could not spend.

**secure_sum**: everybody in the cohort of K adds a K-th of the variance of Z, and a share `honest` of them is counted
on: h = ceil(honest K) / K, for clients come whole and one's own share can be counted on. Whoever is not honest is taken
to tell the server what it added, so what protects is the noise of the honest, normal of variance h Var(Z). Var(Z) is
therefore 1 / h of what budgets ask for, and charges are over the counted part alone. A cohort of one is protected by
its own noise, whatever `honest` says: there is nobody else. Only normal shares add up to normal noise, so Gaussian
noise only. **central**: a trusted server adds Z; any law whose cost depends on sensitivity over scale.

**Poisson cohorts.** Who takes part is decided in every round by a secret coin of each client, of rate p_n. Weights are
constants: those among all that may be drawn, over the EXPECTED total weight, for the realised size is as secret as the
coins. The sum then is a Gaussian mechanism on a Poisson sample, of sensitivity s_n and rate p_n, noise as above; an
empty cohort releases noise. Nobody may see who took part: not under `local`. Under `secure_sum` everybody answers in
every round, and who was not drawn sends its share of the noise alone; honest ones are counted among all.

**Rounding.** Sums are float64. With at most m terms of norm at most B a computed sum is within (m + 1) 2^-53 m B of the
true one (Higham, section 3.1), in either of two neighbouring worlds; twice that is added to every s_n. What is released
is the ideal noisy sum on a grid (draws.py).

A floating-point stand-in for a discrete protocol: real secure sums add integers modulo something, and their shares are
discrete. One draw of Z has the law of the sum of all shares.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from dpflbench.draws import Draws
from dpflbench.errors import PluginError, RunEnded
from dpflbench.federation.calibration import Calibration
from dpflbench.interfaces import (
    Aggregator,
    Cohort,
    Event,
    Floats,
    Ints,
    LinearAggregator,
    Mechanism,
    Probe,
    Protect,
    ReportsWeights,
    Setup,
    Trust,
    Updates,
)
from dpflbench.privacy.sensitivity import HALF

ALIKE = 1e-4  # of the norm of all rows: how far apart two ways to add them up may be
UP = 1 + 2.0**-48  # more than a quotient, two products and a sum can round


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Shown:
    """What one round shows the server, decided by public facts before anything is computed."""

    clients: Ints  # [J], who is charged
    events: Sequence[Event]  # [J] rows each, what for; none: it was charged before
    paid: Event  # [K], of the cohort's messages: as they were calibrated
    weights: Floats | None = None  # [K], of the messages in a sum; None: rows are shown
    expected: float = 1.0  # what weights add up to, on average
    scale: float = 0.0  # of all noise in the sum
    quantile: float | None = None  # the same in the sum that tells who is within the clip; None: nobody asked

    def variance(self, mechanism: Mechanism) -> float | None:
        """Of one coordinate of the noise in a sum, per unit of the weight it was expected to have; None: every row has
        its own.
        """
        if self.weights is None:
            return None
        noise, whole = float(mechanism.variance(np.full(1, self.scale))[0]), self.expected**2
        return noise / whole if whole else np.inf if noise else 0.0


class Trusted(Protocol):
    """What a trust decides of a round."""

    def settled(self, calibration: Calibration, everybody: Cohort, aggregator: Aggregator, setup: Setup) -> Calibration:
        """The noise of a plan, with what its sums have in common whoever takes part."""
        ...

    def shown(
        self,
        calibration: Calibration,
        cohort: Ints,
        facts: Cohort,
        aggregator: Aggregator,
        probe: Probe | None,
        setup: Setup,
        first: bool,
        bound: float,
    ) -> Shown:
        """What a round shows and costs; `first` of a plan, and with the clip bound at `bound` times what it was."""
        ...

    def protect(self, mechanism: Mechanism, shown: Shown, draws: Draws) -> Protect:
        """What happens to values before they leave the clients' side."""
        ...

    def combine(
        self, aggregator: Aggregator, updates: Updates, state: Any, shown: Shown | None = None
    ) -> tuple[Any, Any, Tensor | None]:
        """What the server makes of what it sees: a direction, the aggregator's next state, and each client's weight as
        far as it is known.
        """
        ...


@dataclass(frozen=True, slots=True)
class LocalTrust:
    """Nobody is trusted: noise at the client, rows at the server."""

    def settled(self, calibration: Calibration, everybody: Cohort, aggregator: Aggregator, setup: Setup) -> Calibration:
        """Return the calibration: every row has its own noise."""
        return calibration

    def shown(
        self,
        calibration: Calibration,
        cohort: Ints,
        facts: Cohort,
        aggregator: Aggregator,
        probe: Probe | None,
        setup: Setup,
        first: bool,
        bound: float,
    ) -> Shown:
        """Return the releases of every row."""
        return rows_shown(calibration, cohort, probe)

    def protect(self, mechanism: Mechanism, shown: Shown, draws: Draws) -> Protect:
        """Return what clients do to values before they leave: noise of the scales [K] and as often as was paid for."""
        paid = shown.paid
        left, every = paid.steps.copy(), np.arange(len(paid.steps))

        def noised(value: Tensor, rows: Ints | None = None) -> Tensor:
            at = every if rows is None else rows
            left[at] -= 1
            if (left < 0).any():
                raise PluginError(
                    f"local update: a release more than the {int(paid.steps[np.argmin(left)])} that were paid for"
                )
            return mechanism.release(value, paid.scale[at], draws)

        return noised

    def combine(
        self, aggregator: Aggregator, updates: Updates, state: Any, shown: Shown | None = None
    ) -> tuple[Any, Any, Tensor | None]:
        """Return what the server makes of the rows."""
        if not isinstance(aggregator, LinearAggregator):
            direction, after = aggregator.aggregate(updates, state)
            told = aggregator.effective_weights(updates, after) if isinstance(aggregator, ReportsWeights) else None
            return direction, after, None if told is None else proved(told, updates.values, direction)
        weights = aggregator.weights(_public(updates))
        if weights is None:
            return updates.values.mean(0), state, torch.full_like(updates.epsilon, 1 / len(updates.values))
        return checked(weights, updates.values) @ updates.values, state, weights


@dataclass(frozen=True, slots=True)
class SumTrust:
    """Somebody is trusted with adding up: the server sees one noisy sum."""

    trust: Trust

    def settled(self, calibration: Calibration, everybody: Cohort, aggregator: Aggregator, setup: Setup) -> Calibration:
        """Return the calibration with constant weights and one noise for all rounds, under Poisson cohorts."""
        if setup.cohorts == "exact":
            return calibration
        drawn = everybody.clients.cpu().numpy()
        rate, weights = calibration.message.rate[drawn], np.zeros(setup.n_clients)
        found = weights_of(aggregator, everybody)
        expected = float(rate @ found)
        if not expected > 0:
            raise PluginError(f"weights expect a total of {expected:.3g}; allowed: above 0, for sums are divided by it")
        weights[drawn] = found / expected
        event = _in_sum(calibration.message, calibration.clip_norm, drawn, weights[drawn], most_drawn(setup))
        return replace(calibration, weights=weights, counted=_asked(event, calibration.message.of(drawn)))

    def shown(
        self,
        calibration: Calibration,
        cohort: Ints,
        facts: Cohort,
        aggregator: Aggregator,
        probe: Probe | None,
        setup: Setup,
        first: bool,
        bound: float,
    ) -> Shown:
        """Return the sum: whom it costs what, and its noise."""
        paid = calibration.message.of(cohort)
        if calibration.weights is not None:
            return self._drawn(calibration, cohort, paid, setup, first)
        a = weights_of(aggregator, facts)
        event = _in_sum(calibration.message, calibration.clip_norm, cohort, a, len(cohort))
        counted = bound * _asked(event, paid)
        event = replace(event, sensitivity=bound * event.sensitivity).at(np.full(len(cohort), counted))
        share = self.trust.counted(len(cohort))
        shown = Shown(
            clients=cohort, events=[event], paid=paid, weights=a, expected=float(a.sum()), scale=counted / share**0.5
        )
        if calibration.quantile is None:
            return shown
        asked = calibration.quantile.of(cohort)
        within = _in_sum(calibration.quantile, np.full(setup.n_clients, HALF), cohort, _even(cohort), len(cohort))
        enough = _asked(within, asked)
        events = [event, within.at(np.full(len(cohort), enough))]
        return replace(shown, events=events, quantile=enough / share**0.5)

    def _drawn(self, calibration: Calibration, cohort: Ints, paid: Event, setup: Setup, first: bool) -> Shown:
        """A Poisson cohort: everybody that may be drawn is charged for all rounds before the first."""
        weights = calibration.weights
        if weights is None:
            raise RuntimeError("no weights were settled")
        if len(cohort) > most_drawn(setup):
            raise RunEnded(f"{len(cohort)} clients were drawn, {setup.cohort_size} were expected: rounding is unproved")
        everybody = np.flatnonzero(calibration.message.rate * np.isfinite(calibration.message.scale))
        event = _in_sum(calibration.message, calibration.clip_norm, everybody, weights[everybody], most_drawn(setup))
        event = event.at(np.full(len(everybody), calibration.counted))
        total = calibration.counted / self.trust.counted(setup.n_clients) ** 0.5
        return Shown(
            clients=everybody, events=[event] if first else [], paid=paid, weights=weights[cohort], scale=total
        )

    def protect(self, mechanism: Mechanism, shown: Shown, draws: Draws) -> Protect:
        """Return the only way out: messages [K, M] go in, and out comes their noisy sum, the same in every row."""
        weights = shown.weights
        if weights is None:
            raise RuntimeError("a sum without weights")
        called: list[bool] = []

        def added(value: Tensor, rows: Ints | None = None) -> Tensor:
            if rows is not None or called:
                raise PluginError("local update: of a sum every client has one message, and all at once")
            called.append(True)
            width = value.shape[1] - (shown.quantile is not None)
            total = torch.as_tensor(weights, device=value.device)[None] @ value[:, :width].double()
            parts = [mechanism.release(total, np.full(1, shown.scale), draws)]
            if shown.quantile is not None:
                within = value[:, width:].double().sum(0, keepdim=True) / max(1, len(value))
                parts.append(mechanism.release(within, np.full(1, shown.quantile), draws))
            return torch.cat(parts, 1).expand(max(1, len(value)), -1)

        return added

    def combine(
        self, aggregator: Aggregator, updates: Updates, state: Any, shown: Shown | None = None
    ) -> tuple[Any, Any, Tensor | None]:
        """Return the sum, and the weights it was made with."""
        if shown is None or shown.weights is None:
            raise RuntimeError("a sum without weights")
        return updates.values[0], state, torch.as_tensor(shown.weights, dtype=updates.values.dtype)


def rows_shown(calibration: Calibration, cohort: Ints, probe: Probe | None) -> Shown:
    """A row a client, each with the noise its budget asks for."""
    return Shown(
        clients=cohort, events=calibration.releases(cohort, probe), paid=calibration.message.of(cohort), weights=None
    )


def weights_of(aggregator: Aggregator, facts: Cohort) -> Floats:
    """The weights [K] of a linear aggregator in float64; PluginError if it has none, or none that are numbers."""
    if not isinstance(aggregator, LinearAggregator):
        raise PluginError("looks at rows, and a sum shows none; allowed: linear aggregators, or privacy.trust: local")
    weights = aggregator.weights(_public(facts))
    if weights is None:
        return _even(facts.clients)
    found = checked(weights, facts.epsilon).detach().double().cpu().numpy()
    if not np.isfinite(found).all() or not found.any():
        raise PluginError("weights of a sum must be finite, and not all 0")
    return found


def most_drawn(setup: Setup) -> int:
    """More clients than a Poisson cohort has in a lifetime: by Chernoff's bound once in exp(64) rounds."""
    return 4 * setup.cohort_size + 64


def sum_sensitivity(weights: Floats, sensitivity: Floats, norm: Floats, terms: int) -> Floats:
    """s_n [K]: how far what is protected at each client moves a computed sum of so many terms, of norms at most `norm`
    [K] before they are weighed.
    """
    rounding = (terms + 1) * terms * 2.0**-52 * float(np.max(np.abs(weights) * norm, initial=0.0))
    return np.asarray(np.abs(weights) * sensitivity + rounding)


def _in_sum(message: Event, norm: Floats, clients: Ints, weights: Floats, terms: int) -> Event:
    """The release that a sum is, a row a client; its noise is not chosen."""
    mine = message.of(clients)
    if np.isinf(mine.sensitivity).any():  # not clipped: without privacy
        return mine
    return replace(mine, sensitivity=sum_sensitivity(weights, mine.sensitivity, norm[clients], terms))


def _asked(event: Event, alone: Event) -> float:
    """The noise of a sum: the most that anybody's budget asks for; 0 without privacy."""
    with np.errstate(invalid="ignore"):
        asked = np.where(alone.scale == 0, 0.0, event.sensitivity * (alone.scale / alone.sensitivity))
    return float(np.max(asked, initial=0.0)) * UP


def _even(clients: Any) -> Floats:
    return np.full(len(clients), 1.0 / max(1, len(clients)))


def _public(facts: Cohort) -> Cohort:
    """What is known of a cohort, without its rows."""
    return Cohort(**{f.name: getattr(facts, f.name) for f in fields(Cohort)})


def checked(weights: Any, values: Tensor) -> Tensor:
    """The weights; PluginError unless there is one a row."""
    if not isinstance(weights, Tensor) or weights.shape != values.shape[:1] or weights.dtype != values.dtype:
        found = f"{weights.dtype} {tuple(weights.shape)}" if isinstance(weights, Tensor) else type(weights).__name__
        raise PluginError(f"weights are {found}; expected {values.dtype} ({len(values)},), one a client, or None")
    return weights


def proved(weights: Any, values: Tensor, direction: Any) -> Tensor:
    """Weights that an aggregator reports; PluginError unless they give its direction."""
    told = checked(weights, values)
    found = told @ values
    if not isinstance(direction, Tensor) or direction.shape != found.shape:
        return told  # whoever looks at the direction says what is wrong with it
    if not float((found - direction).norm()) <= ALIKE * float(values.norm()):
        raise PluginError("effective_weights times rows is not its direction; return None where there are none")
    return told


def initial(aggregator: Aggregator, setup: Setup) -> Any:
    """An aggregator's state before the first round; linear ones have none."""
    return None if isinstance(aggregator, LinearAggregator) else aggregator.init(setup)


def trust_of(trust: Trust) -> LocalTrust | SumTrust:
    """What a suite's `privacy.trust` does."""
    return LocalTrust() if trust.rows else SumTrust(trust)
