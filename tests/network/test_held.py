"""A clustering in a file of the coordinator's: clients in other processes never load it, and are grouped by it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.errors import FedbanditError
from fedbandit.network.coordinator.config import load_config
from fedbandit.structures import held
from tests.network.servers import Coordinator
from tests.test_contributing import CLUSTERS

TABLE = """
[federations.shops]
system = "composed"
clients = 4
dim = 3
horizon = 10000
round_seconds = 0.05
keywords = {{structure = "mine.py:{part}", protocol = "{protocol}"{more}}}
"""
UPLOADS = "event-triggered(gamma_upload=1.2, gamma_download=1.2)"


class Clustering(Coordinator):
    """A coordinator whose configuration names a clustering in the file beside it."""

    part = "NearEstimates(distance=9.0)"

    def start(self) -> str:
        """Start it; its address."""
        head = f'[server]\nport = {self.port}\nstore = "{self.store}"\n'
        self.config.write_text(head + TABLE.format(part=self.part, protocol=UPLOADS, more=""))
        return self.launch()


def configured(folder: Path, text: str, part: str = "NearEstimates", protocol: str = UPLOADS, more: str = "") -> Path:
    (folder / "mine.py").write_text(text)
    path = folder / "federation.toml"
    path.write_text(TABLE.format(part=part, protocol=protocol, more=more))
    return path


def test_clients_are_grouped_by_code_that_they_do_not_have(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(CLUSTERS)
    coordinator = Clustering(tmp_path, str(tmp_path / "shops.db"))
    url, rng = coordinator.start(), np.random.default_rng(0)
    states = [tmp_path / f"{i}.db" for i in range(2)]
    try:
        for life in range(2):
            clients = [fb.Client(url, federation="shops", name=f"c{i}", state=states[i]) for i in range(2)]
            try:
                until = time.monotonic() + 60
                own, known = [0, 0], [0, 0]
                while known[0] <= own[0] or known[1] <= own[1]:
                    assert time.monotonic() < until, (own, known)
                    for client in clients:
                        choice = client.select(rng.uniform(-0.5, 0.5, (4, 3)))
                        client.observe(float(rng.uniform()), choice)
                    time.sleep(0.02)
                    own, known = ([_model(client)[k] for client in clients] for k in range(2))
            finally:
                for client in clients:
                    client.close()
            if life == 0:
                coordinator.kill()
                coordinator.start()
    finally:
        coordinator.stop()
    assert not [part for part, _ in held._HELD if part == Clustering.part], "a client has loaded the coordinator's file"
    (tmp_path / "mine.py").write_text(CLUSTERS + "\n# another version\n")
    words = [sys.executable, "-m", "fedbandit", "serve", "--config", str(coordinator.config)]
    again = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert again.returncode == 2
    assert "is not at hand as it was; put it back, or use another name for a new federation" in again.stderr


def _model(client: fb.Client) -> tuple[int, int]:
    """Observations of its own, and all that its model knows."""
    machine = client._durable.machine
    return machine.observed, machine.model.n


@pytest.mark.parametrize(
    ("text", "more", "sentence"),
    [
        ("class NearEstimates: ...", "", "which is not a Structure; see CONTRIBUTING"),
        (CLUSTERS.replace("by_member: ClassVar[bool] = True", ""), "", "looks for no groups while running"),
        (
            CLUSTERS.replace(
                "    def sharing(", "    def shared_dim(self, world):\n        return 1\n\n    def sharing("
            ),
            "",
            "says for itself what shared_dim is",
        ),
        (CLUSTERS, ', privacy = "private-statistics(epsilon=5.0)"', "do not know how often it calls them"),
        (CLUSTERS, ', policy = "mine.py:Mine"', "policy is 'mine.py:Mine', which is code in a file"),
    ],
)
def test_what_clients_would_have_to_know_is_refused(text: str, more: str, sentence: str, tmp_path: Path) -> None:
    protocol = "count-triggered(factor_upload=1.5, factor_download=1.5)" if "privacy" in more else UPLOADS
    with pytest.raises(FedbanditError, match=sentence):
        load_config(configured(tmp_path, text, protocol=protocol, more=more))


def test_a_file_that_changed_needs_a_new_process(tmp_path: Path) -> None:
    load_config(configured(tmp_path, CLUSTERS))
    with pytest.raises(FedbanditError, match="has changed since it was loaded; start the coordinator again"):
        load_config(configured(tmp_path, CLUSTERS + "\n"))
