"""Claimed against true epsilon, for published recipes and for one's own: what `dpflbench account` prints.

Every function returns one `Account`: the epsilon somebody claims and rows of what it really is, each with the analysis
behind it.
"""

import math
from dataclasses import dataclass

from dpflbench.errors import DpflbenchError
from dpflbench.privacy.gaussian_dp import epsilon_of, mu_of


@dataclass(frozen=True, slots=True)
class Row:
    """One number and how it was found."""

    what: str
    value: float


@dataclass(frozen=True, slots=True)
class Account:
    """What is claimed, if anything, and what is true: `low` <= true epsilon <= `high`."""

    claimed: float | None
    low: float
    high: float
    rows: tuple[Row, ...]
    subject: str = ""  # what makes the claim, where several things might

    @property
    def broken(self) -> bool:
        """Whether the claim is certainly too small (a millionth is rounding)."""
        return self.claimed is not None and self.low > self.claimed * (1 + 1e-6)

    @property
    def verdict(self) -> str:
        """One sentence."""
        true = (
            f"{self.low:.4g}"
            if self.high - self.low <= 1e-3 * self.high
            else f"between {self.low:.4g} and {self.high:.4g}"
        )
        if self.claimed is None:
            return f"epsilon is {true}"
        held = (
            "does NOT hold"
            if self.broken
            else "holds"
            if self.high <= self.claimed * (1 + 1e-6)
            else "is not established"
        )
        return f"claimed epsilon {self.claimed:g} {f'of {self.subject} ' if self.subject else ''}{held}: it is {true}"


def gaussian(sigma: float, uses: int, delta: float, sensitivity: float = 1.0, claimed: float | None = None) -> Account:
    """`uses` releases of a query of L2 sensitivity `sensitivity` with noise of standard deviation sigma, without
    subsampling.
    """
    from dpflbench.judges.second_accountant import gaussian_epsilon

    _positive(sigma=sigma, uses=uses, sensitivity=sensitivity)
    ratio = sensitivity / sigma
    exact = float(epsilon_of(ratio * math.sqrt(uses), delta))
    rows = (
        Row("exact (Gaussian DP)", exact),
        Row("exact, by dp-accounting", gaussian_epsilon(((ratio, uses),), delta)),
        Row("Rényi DP, by dp-accounting", _renyi(ratio, uses, delta)),
        Row("classic sqrt(2 ln(1.25/delta)), epsilon and delta split over uses", uses * ratio * classic(delta / uses)),
    )
    return Account(claimed, exact, exact, rows)


def laplace(
    scale: float, uses: int, sensitivity: float = 1.0, delta: float = 0.0, claimed: float | None = None
) -> Account:
    """`uses` releases of a query of L1 sensitivity `sensitivity` with Laplace noise; with delta > 0 also a tighter
    composition.
    """
    _positive(scale=scale, uses=uses, sensitivity=sensitivity)
    pure = uses * sensitivity / scale
    if delta == 0:
        return Account(claimed, pure, pure, (Row("pure, the sum of all uses", pure),))
    low, high = _laplace_pld(scale / sensitivity, uses, delta)
    rows = (
        Row("pure, the sum of all uses", pure),
        Row(f"privacy loss distribution at delta {delta:g}, at most", high),
        Row(f"privacy loss distribution at delta {delta:g}, at least", low),
    )
    return Account(claimed, low, min(high, pure), rows)


def paper_bcs(epsilon: float, delta: float, uses: float) -> Account:
    """DPFL-BCS as printed: Lemma 1 with its constant c2 set to 1, and Algorithm 2, which splits epsilon and delta over
    T_n uses.

    T_n may be a fraction, as it is in the paper: a client with T_n = 0.4 that is drawn once has spent its budget 2.5
    times.
    """
    _positive(epsilon=epsilon, uses=uses)
    classic(delta)  # refuses a delta outside (0, 1)
    each, taken = classic(delta / uses), math.ceil(uses)
    mu = float(mu_of(epsilon, delta))
    lemma = epsilon / math.sqrt(math.log(1 / delta))  # c2 = 1: the mu of all uses together
    linear = math.sqrt(taken) * epsilon / uses / each
    rows = (
        Row("c2 at which Lemma 1 is exact", epsilon / (mu * math.sqrt(math.log(1 / delta)))),
        Row("epsilon of Lemma 1 with c2 = 1", float(epsilon_of(lemma, delta))),
        Row(f"epsilon of Algorithm 2 after {taken} uses planned as {uses:g}", float(epsilon_of(linear, delta))),
        Row("noise of Algorithm 2 over the exact noise", uses * each / (math.sqrt(uses) / mu)),
    )
    true = float(epsilon_of(max(lemma, linear), delta))
    return Account(epsilon, true, true, rows, "Lemma 1 with c2 = 1" if lemma >= linear else "Algorithm 2")


def pfa_formula(epsilon: float, n_examples: int, batch: int, delta: float = 1e-5, steps: int = 8000) -> Account:
    """The closed form of the PFA reference code: sigma = 10 q sqrt(steps log10(1/delta)) / epsilon with q = batch /
    n_examples.

    It is no accountant: far too much noise for a small epsilon, and next to no guarantee where it gives sigma < 1. The
    true epsilon is enclosed by an optimistic and a pessimistic privacy loss distribution, and bounded by Rényi DP, all
    for Poisson sampling (the code draws batches without replacement, for which even less is proved). 8000 steps are 80
    % of its 10,000.
    """
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.rdp import RdpAccountant

    _positive(epsilon=epsilon, n_examples=n_examples, batch=batch, steps=steps)
    if not 0 < delta < 1 or batch > n_examples:
        raise DpflbenchError(
            f"delta {delta:g}, batch {batch} of {n_examples}; allowed: delta in (0, 1), batch up to n_examples"
        )
    rate = batch / n_examples
    sigma = 10 * rate * math.sqrt(steps * math.log10(1 / delta)) / epsilon
    accountant = RdpAccountant([1 + 10 ** (i / 13) for i in range(-52, 27)])  # little noise needs orders close to 1
    accountant.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(sigma)), steps)
    renyi = float(accountant.get_epsilon(delta))
    low, high = _sampled_gaussian_pld(sigma, rate, steps, delta, min(2e-3, max(1e-4, renyi / 1e4)))
    rows = (
        Row("sigma the formula gives", sigma),
        Row("Rényi DP, at most", renyi),
        Row("privacy loss distribution, at most", high),
        Row("privacy loss distribution, at least", low),
    )
    return Account(epsilon, low, min(renyi, high), rows)


def classic(delta: float) -> float:
    """sqrt(2 ln(1.25 / delta)): the textbook noise for epsilon = 1, proved for epsilon < 1 only."""
    if not 0 < delta < 1:
        raise DpflbenchError(f"delta: found {delta:g}; allowed: between 0 and 1")
    return math.sqrt(2 * math.log(1.25 / delta))


def _renyi(ratio: float, uses: int, delta: float) -> float:
    from dp_accounting import GaussianDpEvent
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant()
    accountant.compose(GaussianDpEvent(1.0 / ratio), uses)
    return float(accountant.get_epsilon(delta))


def _laplace_pld(scale: float, uses: int, delta: float) -> tuple[float, float]:
    from dp_accounting.pld.privacy_loss_distribution import from_laplace_mechanism

    low, high = (
        from_laplace_mechanism(
            scale,
            value_discretization_interval=min(1e-3, 0.02 / scale),
            pessimistic_estimate=pessimistic,
            use_connect_dots=pessimistic,
        )
        .self_compose(uses)
        .get_epsilon_for_delta(delta)
        for pessimistic in (False, True)
    )
    return float(low), float(high)


def _sampled_gaussian_pld(sigma: float, rate: float, steps: int, delta: float, interval: float) -> tuple[float, float]:
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    low, high = (
        from_gaussian_mechanism(
            sigma,
            sampling_prob=rate,
            value_discretization_interval=interval,
            pessimistic_estimate=pessimistic,
            use_connect_dots=pessimistic,
        )
        .self_compose(steps)
        .get_epsilon_for_delta(delta)
        for pessimistic in (False, True)
    )
    return float(low), float(high)


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not (value > 0 and math.isfinite(value)):
            raise DpflbenchError(f"{name}: found {value:g}; allowed: positive and finite")
