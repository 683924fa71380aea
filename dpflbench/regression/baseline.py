"""Baseline: what a gate has to remember of a results folder, small enough to be committed.

A file holds one line a run: utility, work (CPU seconds of the rounds in reference steps), and short digests of the
final model, of the budgets and of the data split. A folder of results can stand for it.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from dpflbench.canonical import content_digest
from dpflbench.errors import DpflbenchError
from dpflbench.report.view import coordinate_key, view
from dpflbench.results.cells import Results
from dpflbench.results.record import Metric, Record
from dpflbench.results.store import Store
from dpflbench.results.titles import title

SCHEMA = 1
SHORT = 16  # hexadecimal digits kept of a digest: chance agreement at 2**-64
MAX_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One run; a line of a baseline file holds its seed and these fields in this order."""

    status: str  # done, diverged or disqualified
    utility: float  # NaN unless done
    model: str  # digest of the final model
    budgets: str  # digest of every client's epsilon and delta; empty without privacy
    task: str  # digest of data and split
    work: float  # CPU seconds of the rounds over seconds of the reference step; NaN if not measured
    numerics: str  # which last bits the machine computes; empty off the CPU
    torch: str
    device: str


@dataclass(frozen=True, slots=True, eq=False)
class Contestant:
    """One algorithm at one setting, with a sample for each seed."""

    algorithm: str
    coordinates: Mapping[str, Any]
    metric: Metric
    samples: Mapping[int, Sample]
    gaps: Mapping[int, str]  # seed → why there is no sample

    @property
    def key(self) -> tuple[str, str]:
        """What makes two places the same."""
        return self.algorithm, coordinate_key(self.coordinates)

    @property
    def title(self) -> str:
        """What it is called."""
        return title(self.algorithm, self.coordinates)


@dataclass(frozen=True, slots=True, eq=False)
class Baseline:
    """A results folder in short."""

    name: str
    value: str  # which utility: utility_global, ...
    places: Mapping[tuple[str, str], Contestant]


def baseline_of(results: Results) -> Baseline:
    """What a gate compares of a results folder."""
    seen = view(results)
    places = {}
    for group in seen.groups.values():
        samples: dict[int, Sample] = {}
        gaps: dict[int, str] = {}
        for outcome in group.endings:
            if outcome.status == "impossible":
                continue
            if outcome.record is None or outcome.status not in ("done", "diverged", "disqualified"):
                gaps[outcome.seed] = f"{outcome.status}: {outcome.reason}"
            else:
                samples[outcome.seed] = _sample(outcome.record, outcome.value)
        if samples or gaps:
            place = Contestant(group.algorithm, group.column.coordinates, seen.metric(group.column), samples, gaps)
            places[place.key] = place
    return Baseline(results.manifest.name, seen.value, places)


def _sample(record: Record, utility: float) -> Sample:
    measured, facts, clients = record.measured, record.facts, record.clients
    on_cpu = measured.get("device") == "cpu"
    spent, step = (
        _positive(measured.get("cpu_seconds" if on_cpu else "seconds")),
        _positive(measured.get("reference_seconds")),
    )
    budgets = content_digest([clients.get("epsilon"), clients.get("delta")])[:SHORT] if record.private else ""
    task = content_digest([facts.get("data_digest"), facts.get("split_digest")])[:SHORT]
    versions = measured.get("versions")
    torch = str(versions.get("torch", "")) if isinstance(versions, Mapping) else ""
    return Sample(
        status=record.status,
        utility=utility,
        model=str(facts.get("final_model", ""))[:SHORT],
        budgets=budgets,
        task=task,
        work=float(f"{spent / step:.4g}"),
        numerics=_bits(measured) if on_cpu else "",
        torch=torch,
        device=str(measured.get("device", "")),
    )


def _bits(measured: Mapping[str, Any]) -> str:
    """Which last bits: of the machine and, where they are not torch's, of the kernels."""
    kernels = str(measured.get("kernels", "torch"))
    return str(measured.get("numerics", "")) + (f" {kernels}" if kernels != "torch" else "")


def _positive(value: Any) -> float:
    """A time that was measured, NaN for anything else: digests do not vouch for a record somebody made up."""
    return float(value) if isinstance(value, int | float) and 0 < value < math.inf else math.nan


def dump_baseline(baseline: Baseline) -> str:
    """The text of a baseline file: one line a run, in a fixed order."""
    gaps = [
        f"{title(p.algorithm, p.coordinates, s)}: {why}" for p in baseline.places.values() for s, why in p.gaps.items()
    ]
    if gaps or not baseline.places:
        found = "; ".join(gaps[:3]) or "nothing was run"
        raise DpflbenchError(f"a baseline must be whole; {len(gaps)} runs have no result: {found}")
    lines = [
        f' "schema": {SCHEMA},',
        f' "name": {json.dumps(baseline.name)},',
        f' "value": {json.dumps(baseline.value)},',
        ' "places": [',
    ]
    for i, (_, place) in enumerate(sorted(baseline.places.items())):
        head = {
            "algorithm": place.algorithm,
            "coordinates": dict(place.coordinates),
            "metric": [place.metric.name, place.metric.unit, place.metric.higher_is_better],
        }
        runs = [json.dumps([seed, *map(_plain, astuple(s))]) for seed, s in sorted(place.samples.items())]
        comma = "," if i < len(baseline.places) - 1 else ""
        lines.append(f'  {json.dumps(head)[:-1]}, "runs": [')
        lines += [f"   {run}{',' if j < len(runs) - 1 else ']}' + comma}" for j, run in enumerate(runs)]
    return "{\n" + "\n".join(lines) + "\n ]\n}\n"


def load_baseline(path: Path) -> Baseline:
    """The baseline in a file, or that of a results folder; DpflbenchError says what is wrong with it."""
    if path.is_dir():
        results = Store(path).results()
        if results.problems:
            raise DpflbenchError(
                f"{path}: unreadable records in the baseline: {'; '.join(p.text for p in results.problems[:3])}"
            )
        return baseline_of(results)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"larger than {MAX_BYTES >> 20} MB")
        return _parse(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise DpflbenchError(f"{path}: no such baseline; --update-baseline makes one of the results") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as e:
        raise DpflbenchError(f"{path}: not a baseline ({type(e).__name__}: {e})") from None


def _parse(body: Any) -> Baseline:
    if body["schema"] != SCHEMA:
        raise ValueError(f"schema {body['schema']!r}, this version reads {SCHEMA}")
    places = {}
    for item in body["places"]:
        name, unit, higher = item["metric"]
        samples: dict[int, Sample] = {}
        for seed, *row in item["runs"]:
            values: dict[str, Any] = {f.name: _back(v, f.type) for f, v in zip(fields(Sample), row, strict=True)}
            sample = Sample(**values)
            if (sample.status == "done") != math.isfinite(sample.utility):
                raise ValueError(f"a run that is {sample.status} with utility {sample.utility!r}")
            samples[int(seed)] = sample
        place = Contestant(
            str(item["algorithm"]), dict(item["coordinates"]), Metric(str(name), str(unit), bool(higher)), samples, {}
        )
        if place.key in places:
            raise ValueError(f"{place.title} stands there twice")
        places[place.key] = place
    return Baseline(str(body["name"]), str(body["value"]), places)


def _plain(value: Any) -> Any:
    """A field of a sample as JSON: what was not measured is null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _back(value: Any, kind: Any) -> Any:
    """The field again: a float, NaN for null, or a text."""
    return str(value) if kind is str else math.nan if value is None else float(value)
