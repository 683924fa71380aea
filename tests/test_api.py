"""dpflbench from Python: light to import, the same records as the command line, typed results that show themselves."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import dpflbench as db
from dpflbench.api import options
from dpflbench.api.showing import Notebook, picture_html
from dpflbench.cli import app
from dpflbench.errors import DataError, DpflbenchError, SuiteError
from dpflbench.execution.prepare import threads
from dpflbench.execution.progress import Snapshot
from dpflbench.execution.stopping import Stop
from dpflbench.results.store import Store

REPO = Path(__file__).parent.parent
KEY = "000102030405060708090a0b0c0d0e0f"
cli = CliRunner()


@pytest.fixture(scope="module")
def body(blobs):
    return {
        "name": "api",
        "task": {
            "dataset": {"name": "npz", "path": str(blobs)},
            "model": "softmax",
            "partition": {"kind": "iid"},
            "holdout": 0.2,
        },
        "federation": {"clients": 8, "cohort": 4, "rounds": 4, "lr": {"initial": 0.5, "decay": 20}},
        "privacy": {
            "mechanism": "gaussian",
            "clip": 1.0,
            "epsilon": {"kind": "uniform", "low": 0.5, "high": 4.0},
            "delta": 1e-5,
        },
        "axes": {"privacy.mechanism": ["gaussian", "laplace"]},
        "seeds": 2,
        "algorithms": ["FedSGD", "DPSGD", "WeiAvg"],
    }


@pytest.fixture(scope="module")
def done(body, tmp_path_factory):
    return db.run(body, tmp_path_factory.mktemp("api") / "results", noise_key=KEY, isolated=False, progress=False)


def test_the_import_is_light_and_the_calls_are_there():
    code = (
        "import sys, dpflbench as db; assert set(db.__all__) <= set(dir(db)); db.suite(db.suites()[0]).set(seeds=3); "
        "heavy = {'torch', 'pandas', 'scipy', 'pyarrow', 'sklearn', 'cvxpy', 'rich', 'IPython'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
    assert not hasattr(db, "nothing_of_that_name")


def test_no_module_hides_a_call():
    """`import dpflbench.plan` would put a module in the place of `db.plan`."""
    for name in db.__all__:
        assert not (REPO / "dpflbench" / f"{name}.py").exists()
        assert not (REPO / "dpflbench" / name / "__init__.py").exists()
    assert callable(db.plan)
    assert callable(db.suite)


def test_a_name_a_path_and_a_mapping_are_the_same_suite(tmp_path):
    text = (REPO / "suites" / "heterogeneity.yaml").read_text()
    named, mapped = db.suite("heterogeneity"), db.suite(yaml.safe_load(text))
    path = db.suite(str(REPO / "suites" / "heterogeneity.yaml"))
    assert named.said == path.said == mapped.said
    assert db.suite(named) is named
    (tmp_path / "again.yaml").write_text(named.yaml())
    assert db.suite(tmp_path / "again.yaml").said == named.said
    assert "heterogeneity" in db.suites()
    assert "8 seeds" in repr(named)


def test_a_mapping_may_extend_a_suite_and_hold_what_python_has(body):
    short = db.suite({"extends": "smoke", "name": "short", "seeds": range(2), "algorithms": ("DPSGD", "WeiAvg")})
    assert list(short.checked.seeds) == [0, 1]
    assert [e.label for e in short.checked.entries] == ["DPSGD", "WeiAvg"]
    body = {**body, "task": {**body["task"], "dataset": {"name": "npz", "path": Path("x.npz")}}}
    assert db.suite(body).checked.base["task"]["dataset"]["path"] == "x.npz"


def test_a_change_makes_a_new_suite_and_is_checked_at_once():
    suite = db.suite("smoke")
    other = suite.set({"federation.rounds": 5, "axes.privacy.epsilon.high": [1, 6]}, seeds=3)
    assert (suite.said["federation"]["rounds"], other.said["federation"]["rounds"]) == (12, 5)
    assert other.checked.axes["privacy.epsilon.high"] == [1, 6]
    with pytest.raises(SuiteError) as caught:
        suite.set({"sedes": 3, "seeds[0].x": 2})
    assert list(caught.value.problems) == [
        "set seeds[0].x: 'seeds' is 1, nothing can be set below it",
        "smoke: sedes: unknown; did you mean 'seeds'?",
    ]


def test_a_plan_has_the_figures_of_the_command(body, tmp_path):
    plan = db.plan(body, results=tmp_path)
    (tmp_path / "s.yaml").write_text(db.suite(body).yaml())
    shown = cli.invoke(app, ["plan", str(tmp_path / "s.yaml"), "--results", str(tmp_path), "--json"])
    assert shown.exit_code == 0
    told = json.loads(shown.output)
    assert {**told, "seconds": 0} == {**plan.json(), "seconds": 0}
    assert (plan.runs, plan.todo, plan.done) == (8, 8, 0)
    frame = plan.frame()
    private = frame[frame.algorithm == "DPSGD"].iloc[0]
    assert 0 < private.epsilon_min <= private.epsilon_max <= 4
    assert frame[frame.algorithm == "FedSGD"].epsilon_max.isna().all()
    assert "8 runs for 12 cells" in str(plan)
    assert "| DPSGD |" in plan._repr_markdown_()


def test_a_call_and_a_command_write_the_same_records(body, done, tmp_path):
    (tmp_path / "s.yaml").write_text(db.suite(body).yaml())
    out = tmp_path / "results"
    shown = cli.invoke(
        app, ["run", str(tmp_path / "s.yaml"), "-o", str(out), "--noise-key", KEY, "--no-isolated", "-q"]
    )
    assert shown.exit_code == 0, shown.output
    here = {run: record.digest for run, record in done.records.items()}
    assert {run: record.digest for run, record in db.read(out).records.items()} == here
    assert len(here) == 8
    assert done.summary() in shown.output


def test_frames_have_a_row_for_every_cell_round_client_and_release(done):
    cells, rounds, clients, events = (done.frame(kind) for kind in ("cells", "rounds", "clients", "events"))
    assert len(cells) == 12  # two of them impossible, for each seed one
    assert set(cells.status) == {"done", "impossible"}
    ran = cells[cells.status == "done"]
    assert len(clients) == 8 * len(ran)
    assert list(rounds.columns)[-3:] == ["round", "utility_global", "loss"]
    recorded = {run: len(record.events["client"]) for run, record in done.records.items() if record.private}
    assert events.groupby("run").size().to_dict() == recorded
    assert events.client.dtype == events["round"].dtype == "int64"
    spent = events[(events.algorithm == "DPSGD") & (events.seed == 0)].groupby("client").cost.sum()
    assert (spent > 0).all()
    summary = done.frame("summary")
    assert set(summary.algorithm) == {"FedSGD", "DPSGD", "WeiAvg"}
    with pytest.raises(DpflbenchError, match="frame cels: unknown; did you mean 'cells'"):
        done.frame("cels")


def test_tables_figures_and_reports_show_themselves(done, tmp_path):
    assert "DPSGD" in str(done.table())
    assert "| DPSGD |" in done._repr_markdown_()
    assert done.tables[0] == "utility"
    assert "epsilon" in str(done.table("epsilon")).lower()
    drawn = done.figure("rounds", only=["WeiAvg"], where={"privacy.mechanism": "laplace"}, width=5)
    assert drawn._repr_svg_().startswith("<svg")
    assert 'width="360"' in drawn.svg
    (path,) = drawn.save(tmp_path / "figures", ["svg"])
    assert path == tmp_path / "figures" / "rounds.svg"
    assert path.read_text() == drawn.svg
    written = done.report(tmp_path / "report", ["csv"])
    assert {p.name for p in written} == {"summary.csv", "cells.csv"}
    with pytest.raises(DpflbenchError, match="no such table; did you mean 'utility'"):
        done.table("utilty")
    with pytest.raises(DpflbenchError, match="no such figure; did you mean 'rounds'"):
        done.figure("ronds")
    with pytest.raises(DpflbenchError, match="unknown; allowed: svg, png, pdf"):
        drawn.save(tmp_path, ["gif"])


def test_a_verdict_is_the_commands_and_a_changed_record_is_wrong(done, tmp_path, body):
    found = done.verify(replay=1, seed=7)
    assert (found.verdict, found.exit_code, found.replayed, found.standing) == ("verified", 0, 1, 8)
    assert found.draws > 0
    shown = cli.invoke(app, ["verify", str(done.path), "--replay", "1", "--seed", "7", "--json"])
    assert shown.exit_code == 0
    assert json.loads(shown.output) == found.json()
    other = tmp_path / "forged"
    (other / "records").mkdir(parents=True)
    (other / "suite.json").write_bytes((done.path / "suite.json").read_bytes())
    assert db.read(other).verify().verdict == "empty"
    for run in done.records:
        (other / "records" / f"{run}.json").write_bytes((done.path / "records" / f"{run}.json").read_bytes())
    victim = next(record for record in done.records.values() if record.private)
    victim.events["scale"][0] *= 0.5
    Store(other).write(victim)
    victim.events["scale"][0] *= 2
    forged = db.read(other).verify()
    assert (forged.verdict, forged.exit_code, forged.wrong) == ("wrong", 1, 1)
    assert victim.id in str(forged)
    shown = cli.invoke(app, ["verify", str(other), "--json"])
    assert shown.exit_code == 1
    assert json.loads(shown.output)["counts"]["wrong"] == 1
    (other / "records" / f"{victim.id}.json").unlink()
    shown = cli.invoke(app, ["verify", str(other), "--json"])
    assert (shown.exit_code, json.loads(shown.output)["verdict"]) == (3, "unverified")


def test_a_comparison_is_the_commands(done, tmp_path):
    base = done.write_baseline(tmp_path / "base.json")
    found = done.compare(base, slowdown=0)
    assert not found.failed
    assert "no regression" in found._repr_markdown_()
    assert {c.verdict for c in done.compare(done, slowdown=0).checks} == {"ok"}
    shown = cli.invoke(app, ["compare", str(done.path), "--baseline", str(base), "--slowdown", "0", "--json"])
    assert shown.exit_code == 0
    told = json.loads(shown.output)
    assert (told["passed"], told["suite"], len(told["checks"])) == (True, "api", len(found.checks))
    text = base.read_text()
    base.write_text(re.sub(r'("done", )([\d.]+)', lambda m: f"{m[1]}{float(m[2]) + 5}", text))
    assert base.read_text() != text
    shown = cli.invoke(app, ["compare", str(done.path), "--baseline", str(base), "--slowdown", "0", "--json"])
    assert shown.exit_code == 1
    assert json.loads(shown.output)["passed"] is False


def test_a_status_is_the_commands(done):
    shown = cli.invoke(app, ["status", str(done.path), "--json"])
    assert json.loads(shown.output) == done.status().json()
    assert done.status().json()["counts"] == {"done": 8, "diverged": 0, "disqualified": 0, "failed": 0}
    assert str(done.status()) == "api: 8 of 8 runs have a record: 8 done"


@pytest.mark.parametrize("command", ["plan", "status", "verify", "compare"])
def test_every_key_of_every_json_is_documented(command, done, body, tmp_path):
    told = {
        "plan": lambda: db.plan(body, results=tmp_path).json(),
        "status": lambda: done.status().json(),
        "verify": lambda: done.verify().json(),
        "compare": lambda: json.loads(
            cli.invoke(app, ["compare", str(done.path), "--baseline", str(done.path), "--json"]).output
        ),
    }[command]()
    guide = (REPO / "dpflbench" / "api" / "README.md").read_text()
    part = guide.split(f"\n| `{command}` |", 1)[1].split("\n| `", 1)[0]
    documented = set(re.findall(r"`(\w+)`", part))

    def keys(value, free=("coordinates",)):
        if isinstance(value, dict):
            for key, item in value.items():
                yield key
                yield from keys(item) if key not in free else ()
        elif isinstance(value, list):
            for item in value:
                yield from keys(item)

    assert set(keys(told)) <= documented
    assert all(f"`{key}`" in part for key in told)


def test_every_call_and_every_argument_is_documented():
    import inspect

    guide = (REPO / "dpflbench" / "api" / "README.md").read_text()
    for name in ("suites", "suite", "plan", "run", "read"):
        assert f"`db.{name}(" in guide
    documented = {*inspect.signature(db.run).parameters} - {"given", "out", "jobs_per_gpu", "ready"}
    for argument in documented:
        assert f"`{argument}`" in guide, argument
    for method in ("records", "frame", "table", "tables", "figure", "figures", "report", "verify", "compare", "status"):
        assert f"`.{method}" in guide
        assert hasattr(db.ResultsFolder, method)


def test_threads_are_as_told_whatever_was_loaded_before_and_given_back(monkeypatch):
    from threadpoolctl import threadpool_info

    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    with options.computing(1):
        assert os.environ["OMP_NUM_THREADS"] == "1"
    assert os.environ["OMP_NUM_THREADS"] == "7"
    before = {pool["filepath"]: pool["num_threads"] for pool in threadpool_info()}
    with threads(2):
        able = [pool for pool in threadpool_info() if pool.get("threading_layer") != "disabled"]  # built for one thread
        assert {pool["num_threads"] for pool in able} == {2}
    assert {pool["filepath"]: pool["num_threads"] for pool in threadpool_info()} == before
    with pytest.raises(DpflbenchError, match="--threads 0: allowed: 1 or more"):
        db.run("smoke", threads=0)


def test_what_a_user_can_fix_is_said_in_a_line(body, done, tmp_path):
    with pytest.raises(DataError, match=r"--data: .* is not a folder"):
        db.plan(body, data=tmp_path / "nowhere")
    with pytest.raises(DpflbenchError, match=r"no suite\.json"):
        db.read(tmp_path)
    with pytest.raises(DpflbenchError, match="holds the results of suite 'api'"):
        db.run("smoke", done.path, isolated=False, progress=False)
    with pytest.raises(DpflbenchError, match="--jobs many"):
        db.run(body, tmp_path / "r", jobs="many", isolated=False)


SCRIPT = """
import dpflbench as db
results = db.run({body!r}, "results", jobs=2)
print("ended", len(results.records))
"""


def test_a_script_without_a_main_guard_may_use_workers(body, tmp_path):
    """Workers that ran the script again would start workers of their own."""
    short = {**body, "seeds": 1, "algorithms": ["DPSGD"], "axes": {}}
    (tmp_path / "script.py").write_text(SCRIPT.format(body={**short, "seeds": 2}))
    out = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    assert out.stdout.count("ended 2") == 1


class Kernel:
    """What a notebook's kernel offers."""

    def __init__(self):
        self.shown = []

    HTML = staticmethod(lambda text: text)

    def display(self, content, display_id):
        self.shown.append(content)
        return self

    def update(self, content):
        self.shown.append(content)


def test_progress_in_a_notebook_is_one_picture_drawn_over_itself_and_names_are_escaped(done):
    now = Snapshot(name="api", host="here", pid=1, total=8, reused=2)
    now.running = [{"label": "<script>x</script>\x1b[2J", "round": 3, "rounds": 4, "utility": 50.0, "speed": 2.0}]
    text = picture_html(now)
    assert "&lt;script&gt;" in text
    assert "<script>" not in text
    assert "\x1b" not in text
    assert '<progress max="8" value="2">' in text
    kernel = Kernel()
    cell = Notebook(kernel, Stop())
    cell.last = 0.0
    cell.poll(lambda: now)
    cell.finished(now, next(iter(done.records.values())), "x", reused=True)
    cell.draw(None)
    assert len(kernel.shown) == 3
    assert "2 of 8 runs" in kernel.shown[-1]
    assert "<table>" not in kernel.shown[-1]
