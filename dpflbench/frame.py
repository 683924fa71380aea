"""A frame: what a participation computes, who adds the noise, who is protected, how cohorts come about. Decided here:
which combinations have a proof, and what goes without saying in them.

A table has one frame, or frames as axes. What has no proof is refused where it is planned, in one line that says why
and what is allowed; suites/README.md has the table of all combinations, and a test holds it against this file.
"""

from dataclasses import dataclass

from dpflbench.interfaces import (
    IDENTITY,
    PLAIN,
    Algorithm,
    Cohorts,
    LinearAggregator,
    LocalUpdate,
    Mechanism,
    Neighbours,
    Trust,
    Unit,
)


@dataclass(frozen=True, slots=True)
class PrivacyFrame:
    """One combination."""

    trust: Trust
    unit: Unit
    cohorts: Cohorts
    local: LocalUpdate  # as a suite names it

    @property
    def neighbours(self) -> Neighbours:
        """The relation it is accounted under unless a suite names another: samples have a proof for zero_out."""
        return "zero_out" if self.cohorts == "poisson" else self.local.neighbours

    @property
    def accountant(self) -> str:
        """Who prices its releases unless a suite names another; empty: the mechanism's own."""
        return "rdp" if self.cohorts == "poisson" else "" if self.unit == "client" else self.local.accountant

    def refusal(self, mechanism: Mechanism) -> str:
        """Why it has no proof under this noise, and what is allowed, with the key it is about; empty if it has one."""
        sums = not self.trust.rows
        if self.cohorts == "poisson" and not sums:
            return (
                "federation.cohorts: poisson under privacy.trust: local, where the server sees who takes part, so that "
                "secret coins amplify nothing; allowed: cohorts: exact, or trust: secure_sum or central"
            )
        if sums and self.unit == "example" and self.local.ruled:
            return (
                f"federation.local: noisy steps at a client under privacy.trust: {self.trust.kind}, where noise is "
                "added to a sum and no step has any; allowed: full_step, or privacy.unit: client, or trust: local"
            )
        if self.trust.kind == "secure_sum" and mechanism.law.name not in ("gaussian", "none"):
            return (
                f"privacy.trust: secure_sum under {mechanism.law.name} noise, whose shares do not add up to noise of "
                "its law; allowed: mechanism gaussian, or trust: central"
            )
        if self.unit == "client" and self.local.noise_for_all is not None:
            return (
                "federation.local.calibrate: rate under privacy.unit: client, where no rate of records protects a "
                "client; allowed: calibrate: noise"
            )
        return ""

    def gap(self, algorithm: Algorithm) -> str:
        """Why an algorithm has no place in this frame; empty if it has one."""
        asked = {"trust": self.trust.kind, "unit": self.unit, "cohorts": self.cohorts}
        for name, key in KEYS.items():
            wanted = algorithm.frame.get(name)
            if wanted is not None and asked[name] != wanted:
                return f"is defined for {key}: {wanted}, not for {asked[name]}"
        exact = (
            self.unit == "client" or not self.trust.rows
        )  # messages have no noise of their own before they are shown
        if not self.trust.rows and not isinstance(algorithm.aggregator, LinearAggregator):
            return f"aggregates rows, and privacy.trust: {self.trust.kind} shows the server their sum alone"
        if exact and algorithm.transform != IDENTITY:
            return "learns personal transforms from noisy messages of a client's own, which nobody has in this frame"
        if exact and algorithm.rule != PLAIN:
            return "has a local rule, which sees noisy gradients only, and in this frame they have no noise yet"
        if algorithm.losses and exact:
            return "asks for clients' losses, which nobody sees in this frame"
        return ""


KEYS = {"trust": "privacy.trust", "unit": "privacy.unit", "cohorts": "federation.cohorts"}  # of a suite
