"""The operations kit: parsed where there is a parser; its metrics exist; its script backs up a running coordinator."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import yaml

from fedbandit.network.client.client import Client
from fedbandit.network.coordinator.config import load_config
from fedbandit.network.coordinator.metrics import HostCollector
from tests.network.servers import make_host, served

DEPLOY = Path(__file__).parents[1] / "deploy"


def metric_names() -> set[str]:
    """As Prometheus sees them."""
    names: set[str] = set()
    for family in HostCollector(make_host()).collect():
        ends = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"], "info": ["_info"]}
        names |= {family.name + end for end in ends.get(family.type, [""])}
    names |= {"fedbandit_token_expires", "fedbandit_expired_tokens"}  # with keys
    return names | {"fedbandit_connections", "fedbandit_connections_most", "fedbandit_certificate_expires"}


@pytest.mark.parametrize("name", ["alerts.yml", "dashboard.json"])
def test_every_metric_exists(name: str) -> None:
    text = (DEPLOY / name).read_text()
    parsed = yaml.safe_load(text) if name.endswith("yml") else json.loads(text)
    rules = [rule["expr"] for group in parsed.get("groups", []) for rule in group["rules"]]
    expressions = rules or [target["expr"] for panel in parsed["panels"] for target in panel["targets"]]
    used = {found for expression in expressions for found in re.findall(r"fedbandit_\w+", expression)}
    assert len(used) > 5
    assert used <= metric_names()
    if name == "alerts.yml" and shutil.which("promtool"):
        subprocess.run(["promtool", "check", "rules", str(DEPLOY / name)], check=True)


@pytest.mark.parametrize("name", ["fedbandit.service", "fedbandit-backup.service", "fedbandit-backup.timer"])
def test_units_are_read(name: str, tmp_path: Path) -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(DEPLOY / name)
    assert "Unit" in unit.sections()
    if shutil.which("systemd-analyze"):
        text = (DEPLOY / name).read_text().replace("/opt/fedbandit/bin/fedbandit", sys.executable)
        copy = tmp_path / name
        copy.write_text(text.replace("/opt/fedbandit/share/backup.sh", "/bin/true").replace("User=fedbandit\n", ""))
        if name.endswith(".timer"):
            (tmp_path / "fedbandit-backup.service").write_text("[Service]\nExecStart=/bin/true\n")
        done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False)
        complaints = [line for line in done.stderr.splitlines() if name in line]
        assert not complaints, complaints


def test_the_chart_is_read_and_its_configuration_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chart = DEPLOY / "helm" / "fedbandit"
    values = yaml.safe_load((chart / "values.yaml").read_text())
    assert yaml.safe_load((chart / "Chart.yaml").read_text())["name"] == "fedbandit"
    monkeypatch.setenv("FEDBANDIT_STORE", "postgresql://user@host/database")
    config = tmp_path / "federation.toml"
    config.write_text(values["config"].replace("/etc/fedbandit/keys", str(tmp_path)))
    assert set(tomllib.loads(config.read_text())["federations"]) == {"shops"}
    assert "shops" in load_config(config).federations
    template = (chart / "templates" / "coordinator.yaml").read_text()
    for place in re.findall(r"\.Values\.([\w.]+)", template):
        found = values
        for key in place.split("."):
            found = found[key]
    plain = re.sub(r"^\{\{.*\}\}$", "", template, flags=re.MULTILINE)
    parts = list(yaml.safe_load_all(re.sub(r"\{\{.*?\}\}", "x", plain)))
    assert [part["kind"] for part in parts] == ["ConfigMap", "Deployment", "Service"]
    if shutil.which("helm"):
        subprocess.run(["helm", "lint", str(chart)], check=True)


def test_the_images_copy_what_there_is() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    assert re.findall(r"^FROM \S+ AS (\w+)$", text, flags=re.MULTILINE) == ["build", "client", "server"]
    for sources in re.findall(r"^COPY (?!--)(.*) \S+$", text, flags=re.MULTILINE):
        assert all((DEPLOY.parent / source).exists() for source in sources.split())


def test_the_backup_script_keeps_the_last_ones(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    host = make_host()
    command = tmp_path / "fedbandit"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fedbandit "$@"\n')
    command.chmod(0o755)
    with served(host) as url, Client(url, federation="shops", name="shop") as client:
        for _ in range(30):
            client.observe(float(rng.uniform(-1, 1)), client.select(rng.uniform(-0.5, 0.5, (5, 3))))
        assert client.flush()
        settings = {"URL": url, "FOLDER": str(tmp_path / "kept"), "KEEP": "2", "FEDBANDIT": str(command)}
        for _ in range(3):
            subprocess.run([str(DEPLOY / "backup.sh")], env=os.environ | settings, check=True, capture_output=True)
    kept = sorted((tmp_path / "kept").glob("*.db"))
    assert len(kept) == 2
    assert all(path.stat().st_size > 0 for path in kept)


def test_the_backup_unit_runs_as_it_is_shipped(tmp_path: Path) -> None:
    """In the environment that systemd gives it, with its example of settings."""
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(DEPLOY / "fedbandit-backup.service")
    coordinators = (DEPLOY / "fedbandit.service").read_text()
    variable, _, command = unit["Service"]["Environment"].partition("=")
    assert variable == "FEDBANDIT"
    assert f"ExecStart={command} serve" in coordinators
    assert f"WorkingDirectory=/var/lib/{unit['Service']['StateDirectory']}\n" in coordinators
    lines = [line for line in (DEPLOY / "backup.env").read_text().splitlines() if not line.startswith("#")]
    example = dict(line.split("=", 1) for line in lines)
    script = (DEPLOY / "backup.sh").read_text()
    assert set(example) == set(re.findall(r"\$\{([A-Z_]+)[:-]", script)) - {variable}
    stub = tmp_path / "fedbandit"
    stub.write_text('#!/bin/sh\necho "$@" > "$2"\n')
    stub.chmod(0o755)
    folder = tmp_path / "backups"
    folder.mkdir()
    left = folder / "20200101T000000.0Z.db.0a1b2c3d.partial"
    left.touch()
    os.utime(left, (0, 0))
    (folder / "20990101T000000.0Z.db.0a1b2c3d.partial").touch()
    environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", **example}
    environment |= {variable: str(stub), "FOLDER": str(folder)}
    subprocess.run([str(DEPLOY / "backup.sh")], env=environment, check=True, capture_output=True)
    (made,) = folder.glob("*.db")
    assert made.read_text().split()[2:] == [
        *("--url", example["URL"], "--token-file", example["TOKEN_FILE"], "--ca", example["CA"])
    ]
    assert not left.exists()
    assert len(list(folder.glob("*.partial"))) == 1, "which another backup may be writing"
