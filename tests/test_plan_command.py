"""`dpflbench plan`: figures of whole runs, cells that cannot learn, how long it takes, and large grids."""

import math
import re
import time
from dataclasses import dataclass, replace

import numpy as np
import pytest
import yaml
from harness import assembly_of, run_of
from record_factory import make_record
from typer.testing import CliRunner

from dpflbench import suite_reading as suites
from dpflbench.cli import app
from dpflbench.execution.attempt import Place
from dpflbench.execution.pace import Pace, pace
from dpflbench.forecast import forecast
from dpflbench.interfaces import Plan
from dpflbench.planning import plan_suite


@pytest.fixture
def alike(tiny):
    """Eight clients with 60 examples and the same budget each, 4 of them a round: every figure can be had by hand."""
    tiny["task"]["holdout"] = 0.2
    tiny["privacy"]["epsilon"] = 2.0
    return tiny


def plan(folder, body, *arguments):
    path = folder / "s.yaml"
    path.write_text(yaml.safe_dump(body))
    shown = CliRunner().invoke(app, ["plan", str(path), "--results", str(folder / "r"), *map(str, arguments)])
    assert shown.exit_code == 0, shown.output
    return shown.output


def test_noise_is_held_against_the_clip_bound_in_the_norm_of_the_clip(alike, catalogue):
    gaussian = forecast(assembly_of(alike, catalogue, "DPSGD"), Place())
    (low, _, high), dim = gaussian.scale, 3 * 4 + 3
    assert low == pytest.approx(high)
    assert gaussian.noise_to_clip == pytest.approx(math.sqrt(dim / 4) * low)  # a mean of four, clip bound 1
    alike["privacy"] |= {"mechanism": "laplace", "clip": 2.0}
    laplace = forecast(assembly_of(alike, catalogue, "DMLDP"), Place())
    deviation = math.sqrt(2) * laplace.scale[0] / math.sqrt(4)
    assert laplace.noise_to_clip == pytest.approx(dim * deviation * math.sqrt(2 / math.pi) / 2.0)


@pytest.mark.parametrize(("use", "stages"), [("DPFL-BCS", 2), ("Power-of-choice", 6)])
def test_a_selector_that_plans_in_stages_is_shown_with_its_whole_run(tiny, catalogue, use, stages):
    given = {"probe_rounds": 2} if use == "DPFL-BCS" else {}
    found = forecast(assembly_of(tiny, catalogue, use, **given), Place())
    assert (found.stages, found.planned_rounds, found.rounds) == (stages, 6, 6)
    if use == "DPFL-BCS":
        assert found.share == pytest.approx((1.0, 1.0, 1.0), abs=1e-6)  # stage 1 alone spends a third


def test_a_selector_that_needs_real_losses_is_shown_as_far_as_it_came(tiny, catalogue):
    @dataclass(frozen=True)
    class Picky:
        def plan(self, view, rng):
            if view.round:
                raise ValueError("these losses cannot be")
            return Plan(np.full(8, 1, dtype=np.int64), 2)

    made = assembly_of(tiny, catalogue, "DPSGD")
    found = forecast(replace(made, algorithm=replace(made.algorithm, selector=Picky())), Place())
    assert (found.stages, found.planned_rounds, found.rounds) == (1, 2, 6)


def test_cells_that_cannot_learn_are_marked(tmp_path, alike, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")  # one table: a narrow terminal folds it, and names rows again
    alike["axes"] = {"privacy.epsilon.value": [0.001, 2.0]}
    shown = plan(tmp_path, alike)
    rows = [line for line in shown.splitlines() if line.startswith(("FedSGD", "DPSGD"))]
    assert [row.endswith("!") for row in rows] == [False, True, False, False]
    assert "! 2 of 6 cells can hardly learn" in shown


def test_how_long_it_takes_is_known_from_earlier_records_or_timed_rounds(tmp_path, tiny):
    shown = plan(tmp_path, tiny)
    assert re.search(r"3 to do take about \d+ s, one after the other \(3 by a few timed rounds\)\.", shown)
    ran = CliRunner().invoke(app, ["run", str(tmp_path / "s.yaml"), "-o", str(tmp_path / "r")])
    assert ran.exit_code == 0
    assert f"3 have their record in {tmp_path / 'r'}. Nothing is left to do." in plan(tmp_path, tiny)
    shown = plan(tmp_path, tiny, "--set", "seeds=3", "--set", "algorithms=[DPSGD, WeiAvg, PFA]")
    assert "2 have their record" in shown
    assert "one after the other (4 by earlier records, 3 by a few timed rounds)." in shown


def test_a_run_takes_as_long_a_round_as_like_runs_took(tiny, catalogue, monkeypatch):
    monkeypatch.setattr("dpflbench.execution.pace.BUDGET", -1.0)  # nothing is timed
    run, other = (run_of(tiny, catalogue, use) for use in ("DPSGD", "WeiAvg"))
    records = [
        replace(make_record(str(i), "DPSGD", i, {}, 1.0), config=run.config, measured={"seconds": seconds})
        for i, seconds in enumerate((2.0, 4.0))  # six rounds each: half a second a round
    ]
    tiny["federation"] |= {"rounds": 20, "lr": {"initial": 1.0, "decay": 5}}
    longer = run_of(tiny, catalogue, "DPSGD", seed=3)
    assert pace([longer], records, catalogue, Place()) == Pace(10.0, 1, 0, 0)
    assert pace([longer, other], records, catalogue, Place()) == Pace(13.0, 1, 0, 1)
    assert pace([other], [], catalogue, Place()) == Pace(None, 0, 0, 1)
    native = [replace(r, measured={"seconds": 6.0, "kernels": "native 0123456789ab"}) for r in records]
    assert pace([longer], [*records, *native], catalogue, Place()) == Pace(10.0, 1, 0, 0)
    assert pace([longer], native, catalogue, Place()) == Pace(None, 0, 0, 1)
    assert pace([longer], [*records, *native[:1]], catalogue, Place(kernels="native")) == Pace(20.0, 1, 0, 0)


def test_only_so_many_cells_are_shown(tmp_path, tiny):
    shown = plan(tmp_path, tiny, "--rows", 2)
    assert "WeiAvg" not in shown
    assert "The first 2 of 3 cells; --rows 0 shows all, --rows N the first N." in shown
    assert "WeiAvg" in plan(tmp_path, tiny, "--rows", 0)


def test_a_tenth_of_a_grid_of_60_000_runs_is_planned_in_less_than_a_tenth_of_30_seconds(tmp_path, tiny, catalogue):
    tiny["axes"] = {
        "privacy.epsilon.high": [float(v) for v in range(4, 14)],
        "federation.lr.initial": [v / 10 for v in range(1, 41)],
        "federation.momentum": [0.0, 0.1, 0.2, 0.3, 0.4],
    }
    tiny["algorithms"] = ["DPSGD", "WeiAvg", "PFA"]
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump(tiny))
    suite = suites.load(path)
    began = time.process_time()
    planned = plan_suite(suite, catalogue, None)
    assert len(planned.runs) == 6000
    assert time.process_time() - began < 3.0
    for cell in planned.manifest.cells[::997]:  # sections that are made once give the runs that each alone would be
        alone = dict(tiny, privacy={**tiny["privacy"], "epsilon": dict(tiny["privacy"]["epsilon"])})
        alone["privacy"]["epsilon"]["high"] = cell.coordinates["privacy.epsilon.high"]
        lr = {"initial": cell.coordinates["federation.lr.initial"], "decay": 20}
        alone["federation"] = {**tiny["federation"], "lr": lr, "momentum": cell.coordinates["federation.momentum"]}
        assert run_of(alone, catalogue, cell.algorithm).id == cell.run
