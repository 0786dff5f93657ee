"""A bare installation: NumPy, tqdm and websockets do for clients and the plain engine; what needs more says so."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fedbandit.errors import FedbanditError, needs

ROOT = Path(__file__).parents[1]
ABSENT = (
    "anyio cryptography dp_accounting llvmlite matplotlib mlflow networkx numba opendp pandas psycopg pyarrow ray "
    "scipy shtab sklearn starlette uvicorn xarray yaml"
)
"""Packages of all extras. None in `sys.modules` is Python's own way to say that a module is not there."""

BARE = f"""
import json, sys
for name in {ABSENT!r}.split():
    sys.modules[name] = None
import fedbandit as fb
"""


def on_a_bare_installation(script: str) -> dict[str, object]:
    """What a script, run where no extra is installed, leaves in `found`."""
    code = f"{BARE}\nfound = {{}}\n{script}\nprint(json.dumps(found))"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_every_module_can_be_imported() -> None:
    """But for compiled code and the coordinator's web service, which nobody imports who does not use them."""
    found = on_a_bare_installation("""
import importlib, pkgutil
for module in pkgutil.walk_packages(fb.__path__, "fedbandit."):
    if not module.name.startswith("fedbandit.engine.fast") and not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            found[module.name] = str(error)
""")
    web = ("fedbandit.gateway.service", "fedbandit.network.coordinator.", "fedbandit.network.relay.")
    assert "fedbandit.gateway.service" in found
    assert all(name.startswith(web) for name in found), found


def test_every_system_without_privacy_runs() -> None:
    """On the plain engine, which "auto" takes by itself."""
    found = on_a_bare_installation("""
from fedbandit.presets import PRESETS
world = {"n_clients": 4, "dim": 3, "n_arms": 4}
env, graph = fb.environments.homogeneous(**world), fb.environments.collaborative(**world)
for name, make in PRESETS.items():
    try:
        result = fb.simulate(make(), graph if "colin" in name or "goblin" in name else env, horizon=30)
        found[name] = result.engine
    except fb.FedbanditError as error:
        found[name] = str(error)
""")
    refused = {name for name, what in found.items() if what != "plain"}
    assert refused == {"feducb", "cdp_fclub_dc"}
    for name in refused:
        assert re.fullmatch(r"Differential privacy needs \S+: pip install 'fedbandit\[private\]'.", str(found[name]))
    assert len(found) > 25


def test_a_client_and_its_files() -> None:
    """A client decides and learns; recorded arrays and logs in CSV are read; logs are evaluated."""
    found = on_a_bare_installation("""
import tempfile, numpy as np
from pathlib import Path
from fedbandit.environments.log_file import log_file
found["client"] = fb.Client.__name__
world = fb.World(n_clients=2, dim=3, horizon=100)
client = fb.ClientMachine(0, fb.async_linucb().told(world), world)
choice = client.select(np.eye(3))
client.observe(choice[0], 1.0)
rng = np.random.default_rng(0)
rows = "".join(f"{i % 2},{rng.random():.3f},{rng.integers(2)},{rng.integers(2)}\\n" for i in range(400))
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "log.csv"
    path.write_text("who,age,action,click\\n" + rows)
    log = log_file(path, client="who", features=["age"], reward="click", logged="uniform")
found["used"] = fb.evaluation.replay(fb.linucb(), log).used > 50
""")
    assert found == {"client": "Client", "used": True}


EXTRAS = {
    "fast": ("fb.simulate(fb.linucb(), env, 10, engine='fast')", "The fast engine needs Numba"),
    "private": ("fb.privacy.bounds.chi_bound(np.ones(1), np.ones(1), 3, 0.1)", "Differential privacy needs SciPy"),
    "secure": ("importlib.import_module('fedbandit.privacy.secure').SecureSource()", "Secure noise needs OpenDP"),
    "server": ("importlib.import_module('fedbandit.cli.serve').run(None)", "A coordinator needs"),
    "postgres": ("importlib.import_module('fedbandit.network.stores.postgres').PostgresStore('')", "PostgreSQL needs"),
    "plots": ("result.plot()", "A plot needs matplotlib"),
    "frames": ("result.to_frame()", "A data frame needs pandas"),
    "studies": ("user_file.read_experiment(Path('mine.yaml'))", "An experiment in YAML needs PyYAML"),
    "data": ("contexts.tf_idf(np.zeros(1, int), np.zeros(1, int), 1, 1)", "Preparing a data set needs scikit-learn"),
    "mlflow": ("importlib.import_module('fedbandit.studies.mlflow').write_runs([], 'mine')", "Writing to MLflow needs"),
    "completion": ("main_module.run_command(['completion', 'bash'])", "Completion of shells needs"),
    "ray": ("importlib.import_module('fedbandit.studies.workers').Workers('ray')", "--workers ray needs Ray"),
}


def test_each_missing_extra_is_named_with_its_command() -> None:
    """One sentence each; and every extra that there is has one."""
    calls = {extra: call for extra, (call, _) in EXTRAS.items()}
    found = on_a_bare_installation(f"""
import importlib, numpy as np
from pathlib import Path
import fedbandit.privacy.bounds
from fedbandit.environments.datasets import contexts
from fedbandit.studies import user_file
from fedbandit.cli import main as main_module
env = fb.environments.homogeneous(n_clients=2, dim=2, n_arms=2)
result = fb.simulate(fb.linucb(), env, 10)
for extra, call in {calls!r}.items():
    try:
        eval(call)
    except fb.FedbanditError as error:
        found[extra] = str(error)
""")
    for extra, (_, beginning) in EXTRAS.items():
        sentence = str(found[extra])
        assert sentence.startswith(beginning), sentence
        assert sentence.endswith(f": pip install 'fedbandit[{extra}]'."), sentence
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(EXTRAS) == set(declared) - {"all", "dev", "telemetry"}, (
        "without telemetry there are no spans, and that is all"
    )


def test_extras_are_complete_and_pinned() -> None:
    """`all` has every extra; what the requirement files pin covers what `make demo` and `make test` use."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    named = set(extras["all"][0].removeprefix("fedbandit[").removesuffix("]").split(","))
    assert named == set(extras) - {"all", "dev", "private"}  # private is in secure
    used = {"run": ["fast", "private", "secure", "server", "plots", "frames", "studies", "data"], "dev": list(extras)}
    for file, wanted in used.items():
        lines = (ROOT / "requirements" / f"{file}.txt").read_text().splitlines()
        pinned = {line.partition("==")[0] for line in lines}
        assert not any("://" in line for line in lines)
        for extra in set(wanted) - {"all", "ray"}:
            for need in [*project["dependencies"], *extras[extra]]:
                name = need.partition(">=")[0].partition("[")[0]
                assert name in pinned or name == "fedbandit", f"{name} of {extra} is not in {file}.txt"


def test_what_is_there_but_broken_is_not_called_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a package that lacks one of its own dependencies is shown as it is."""
    (tmp_path / "half_installed.py").write_text("import no_such_dependency\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        needs("half_installed", "plots", "A plot")
    with pytest.raises(FedbanditError, match=r"^A plot needs no_such_package: pip install 'fedbandit\[plots\]'.$"):
        needs("no_such_package.inner", "plots", "A plot")
