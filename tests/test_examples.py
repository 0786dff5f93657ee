"""The notebooks run from the first cell to the last; the other examples are started and used."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.network.servers import make_host, served

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOKS = sorted((EXAMPLES / "notebooks").glob("*.ipynb"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_notebooks_run(path: Path, tmp_path: Path) -> None:
    notebook = nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)  # type: ignore[no-untyped-call]
    assert not any(cell.get("outputs") for cell in notebook.cells), "nothing generated is committed"
    there = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=there).execute()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_recommender_with_two_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A click that comes to the other worker is learnt there, once."""
    import importlib

    from starlette.testclient import TestClient

    host = make_host()
    monkeypatch.setenv("CHOICE_KEY", "sixteen-bytes-or-more")
    monkeypatch.setenv("STATE", str(tmp_path))
    with served(host) as url:
        monkeypatch.setenv("URL", url)
        recommender = importlib.import_module("examples.recommender")
        with TestClient(recommender.app) as first:
            choices = [first.get("/recommend", params={"age": age}).json() for age in (0.1, 0.5, 0.9)]
        assert {choice["article"] for choice in choices} <= set(recommender.ARTICLES)
        monkeypatch.setenv("WORKER", "1")
        with TestClient(recommender.app) as second:
            for choice in choices:
                status = second.post("/click", params={"choice": choice["choice"]})
                assert status.status_code == 200, status.text
            assert status.json()["observed"] == 3
            again = second.post("/click", params={"choice": choices[0]["choice"]})
            assert again.status_code == 422, "a token is taken once"
            assert recommender.app.state.client.flush()
        assert host.federations["shops"].federation.machine.gathered().n <= 3


def test_hospitals_learn_from_secure_sums() -> None:
    import importlib

    status = importlib.import_module("examples.hospitals").main()
    assert [one["observed"] for one in status] == [40] * 5
    assert all(one["version"] >= 1 for one in status), "everybody was sent a total"
