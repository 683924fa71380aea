"""How an algorithm looks: colour, dashes and marker by its place in the suite, the same in all figures of a report.

The colours follow Okabe and Ito (2008) and Tol (2021), told apart with any colour vision, darkened where white paper
needs it (contrast of 3 to 1); dashes and markers tell them apart in grey print too.
"""

from dataclasses import dataclass, replace

from dpflbench.report.view import View


@dataclass(frozen=True, slots=True)
class Look:
    """The look of one algorithm."""

    light: str  # on white paper
    dark: str  # on a dark screen
    dash: tuple[float, ...]  # empty: solid
    marker: str  # a name of MARKERS


MARKERS = {  # SVG paths around the origin, about two wide
    "circle": "M-1,0a1,1,0,1,0,2,0a1,1,0,1,0-2,0Z",
    "square": "M-.9-.9H.9V.9H-.9Z",
    "diamond": "M0-1.2L1.2,0 0,1.2-1.2,0Z",
    "up": "M0-1.1L1.1,.9H-1.1Z",
    "down": "M0,1.1L1.1-.9H-1.1Z",
    "left": "M-1.1,0L.9-1.1V1.1Z",
    "right": "M1.1,0L-.9-1.1V1.1Z",
    "ring": "M-1,0a1,1,0,1,0,2,0a1,1,0,1,0-2,0Z",
    "plus": "M-.4-1.2H.4V-.4H1.2V.4H.4V1.2H-.4V.4H-1.2V-.4H-.4Z",
}
NOT_PRIVATE = Look("#000000", "#f2f2f2", (1.5, 1.5), "plus")
PALETTE = (
    Look("#d55e00", "#f0803c", (5, 2), "down"),
    Look("#bf8200", "#f0b33c", (5, 2), "left"),
    Look("#3f9bd0", "#7cc8f4", (), "square"),
    Look("#009e73", "#2fc69a", (7, 2, 1.5, 2), "up"),
    Look("#cc79a7", "#e39ac4", (3, 1.5), "right"),
    Look("#0072b2", "#4aa3df", (), "circle"),
    Look("#882255", "#d0649d", (9, 2), "diamond"),
    Look("#117733", "#55b573", (2, 1), "square"),
    Look("#8a8a2e", "#c9c95a", (7, 2, 1.5, 2), "up"),
    Look("#808080", "#a8a8a8", (1, 1), "down"),
    Look("#332288", "#9285e0", (4, 1.5, 1, 1.5), "right"),
    Look("#2f9d8c", "#6fd0c0", (), "plus"),
    Look("#aa4499", "#d37cc4", (5, 2), "circle"),
    Look("#661100", "#c2674f", (2, 1), "left"),
)


def looks(view: View) -> dict[str, Look]:
    """Name → look, in the order of the suite; the first that is not private has one of its own. No two are alike."""
    public = {g.algorithm for g in view.groups.values() if not g.private}
    first = next((name for name in view.algorithms if name in public), None)
    rest = [name for name in view.algorithms if name != first]
    chosen = {name: nth(number) for number, name in enumerate(rest)}
    return {name: chosen.get(name, NOT_PRIVATE) for name in view.algorithms}


def nth(number: int) -> Look:
    """The look at a place; the second time round each colour has another marker."""
    look, signs = PALETTE[number % len(PALETTE)], list(MARKERS)
    turned = (signs.index(look.marker) + number // len(PALETTE)) % len(signs)
    return replace(look, marker=signs[turned])
