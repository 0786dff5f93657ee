"""`fedbandit data` and `fedbandit replay`, and data sets as environments of `simulate` and `compare`."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from fedbandit.cli.main import main
from tests.cli.command_line import refusal, report
from tests.environments.datasets.conftest import FIXTURE
from tests.evaluation.synthetic_logs import FEATURES, make_world

WORLD = ("--data", str(FIXTURE), "--dim", "5", "--arms", "6")
COLUMNS = ("--client", "user", "--features", ",".join(FEATURES), "--reward", "click")


def write_log(path: Path, n: int = 200, skew: float = 0.0) -> Path:
    """A log as CSV, without the rewards that nobody knows."""
    frame = make_world(0, n=n, skew=skew).frame
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(frame)
        for row in zip(*frame.values(), strict=True):
            writer.writerow(["" if entry != entry else entry for entry in row])
    return path


def test_check_counts_what_is_in_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    found = report(capsys, "data", "check", str(FIXTURE))["data"]
    assert [entry["data"] for entry in found] == ["delicious", "lastfm", "movielens", "movielens", "movielens"]
    lastfm = found[1]
    assert lastfm["found"]["users in files"] == 24
    assert lastfm["published"]["users in files"] == 1892
    heto = next(entry for entry in lastfm["papers"] if entry["more than"] == 350)
    assert (heto["users"], heto["published"]) == (0, {"users": 75, "interactions": 41284})
    assert main(["data", "check", str(FIXTURE / "lastfm-2k")]) == 0
    text = capsys.readouterr().out
    assert "published       1,892   differs" in text
    assert "No user has more than 50 listened artists" in text


def test_prepare_says_what_it_made_and_draws_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "activity.png"
    made = report(capsys, "data", "prepare", "lastfm:n_clusters=4", *WORLD, "--plot", str(picture))
    assert made["found"]["clients"] == 4
    assert (made["dim"], made["arms"]) == (5, 6)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert main(["data", "prepare", "lastfm", *WORLD, "--min-observations", "16"]) == 0
    text = capsys.readouterr().out
    assert "ready in" in text
    assert "note: user_taggedartists-timestamps.dat is not there" in text


def test_simulate_reports_normalised_reward_and_groups(capsys: pytest.CaptureFixture[str]) -> None:
    found = report(capsys, "simulate", "async-linucb", "--env", "lastfm", *WORLD, "--alpha", "0.3")
    assert found["horizon"] == 387
    assert found["normalised_reward"] > 1
    assert sum(group["interactions"] for group in found["groups"]) == 387
    assert sum(group["reward"] for group in found["groups"]) == found["reward"]
    assert main(["simulate", "linucb", "--env", "delicious", *WORLD]) == 0
    assert "over random arms on the same stream" in capsys.readouterr().out


def test_compare_normalises_over_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("compare", "linucb", "uniform", "--env", "lastfm", *WORLD, "--seeds", "3", "--jobs", "1")
    systems = {entry["label"]: entry for entry in report(capsys, *words)["systems"]}
    assert systems["uniform"]["normalised_reward"] == 1
    assert systems["linucb"]["normalised_reward"] > 1
    assert systems["linucb"]["normalised_reward_standard_error"] > 0
    assert main(list(words)) == 0
    assert "reward over that of random arms" in capsys.readouterr().out


def test_environment_variable_names_the_data(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDBANDIT_DATA", str(FIXTURE))
    words = ("--env", "movielens:release=20m,most_active=8", "--dim", "5", "--arms", "6")
    assert report(capsys, "simulate", "uniform", *words)["horizon"] == 208


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("data",), "The following arguments are required: check | prepare; see fedbandit data --help."),
        (("data", "check", "nowhere"), "There is no folder 'nowhere'."),
        (("data", "check", str(FIXTURE.parents[2] / "evaluation")), "There is no data set that fedbandit knows in"),
        (("data", "prepare", "lasfm"), "There is no data set 'lasfm'; did you mean 'lastfm'?"),
        (("data", "prepare", "lastfm", "--data", "nowhere"), "Last.FM (HetRec-2011) is not in 'nowhere': download"),
        (("data", "prepare", "lastfm", *WORLD, "--ridge", "1"), "There is no flag '--ridge'"),
        (("data", "prepare", "lastfm", *WORLD, "--dime", "1"), "There is no flag '--dime'; did you mean '--dim'?"),
        (("data", "prepare", "lastfm", *WORLD, "--release", "1m"), "There is no keyword of lastfm 'release'"),
        (
            ("simulate", "linucb", "--env", "lastfm", *WORLD, "--horizon", "999"),
            "horizon is 999, but must be at most 387",
        ),
        (("replay", "linucb", "--log", "nowhere.csv", *COLUMNS), "There is no file 'nowhere.csv'."),
        (("replay", "linucb", "--log", str(FIXTURE / "ml-1m/users.dat"), *COLUMNS), "must end in .csv or .parquet"),
        (("replay", "linucb", *COLUMNS), "The following arguments are required: --log; see fedbandit replay --help."),
    ],
)
def test_what_makes_no_sense_is_refused(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], sentence: str
) -> None:
    assert sentence in refusal(capsys, *words)


def test_replay_of_a_csv_log(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = str(write_log(tmp_path / "log.csv"))
    found = report(capsys, "replay", "async-linucb:alpha=0.3", "--log", log, *COLUMNS, "--logged", "uniform")
    assert found["method"] == "replay"
    assert found["decisions"] == 200
    assert found["estimates"][0]["low"] < found["estimates"][0]["value"] < found["estimates"][0]["high"]
    assert "while learning" in found["question"]
    assert main(["replay", "linucb", "--log", log, *COLUMNS, "--propensity", "p", "--method", "frozen"]) == 0
    text = capsys.readouterr()
    assert "an estimate, not a simulation" in text.out
    assert "doubly robust" in text.out


def test_frozen_evaluation_of_a_parquet_log(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    path = tmp_path / "log.parquet"
    pd.DataFrame(make_world(0, skew=1.0).frame).to_parquet(path)
    found = report(capsys, "replay", "linucb", "--log", str(path), *COLUMNS, "--propensity", "p", "--train", "0.6")
    assert found["method"] == "frozen"
    assert found["decisions"] == 160
    assert [estimate["estimator"] for estimate in found["estimates"]] == [
        "doubly robust",
        "self-normalised",
        "inverse propensity",
    ]
    path.write_bytes(b"nonsense")
    assert "cannot be read as Parquet" in refusal(capsys, "replay", "linucb", "--log", str(path), *COLUMNS)


def test_bad_logs_are_refused_with_file_and_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = write_log(tmp_path / "log.csv", n=5)
    lines = path.read_bytes().splitlines()
    words = ("replay", "linucb", "--log", str(path), *COLUMNS)

    def spoilt(*content: bytes) -> str:
        path.write_bytes(b"\n".join(content) + b"\n")
        return refusal(capsys, *words, "--propensity", "p")

    assert f"'{path}', line 3: 2 columns instead of 8; is the file cut" in spoilt(*lines[:2], b"1,2", *lines[2:])
    assert f"'{path}', line 2: there is no data." in spoilt(lines[0])
    assert "line 2: the text is not UTF-8" in spoilt(lines[0], lines[1] + b"\xff", *lines[2:])
    assert "line 1: a column is named twice" in spoilt(lines[0].replace(b"f1", b"f0"), *lines[1:])
    entries = lines[2].split(b",")
    assert f"'{path}', line 3: f1 is much, but must be a finite number." in spoilt(
        *lines[:2], b",".join([*entries[:3], b"much", *entries[4:]]), *lines[3:]
    )
    assert "There is no column 'click'; did you mean 'clicks'?" in spoilt(
        lines[0].replace(b"click", b"clicks"), *lines[1:]
    )


def test_warnings_go_to_standard_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = str(write_log(tmp_path / "log.csv", n=60))
    assert main(["replay", "linucb", "--log", log, *COLUMNS, "--propensity", "p"]) == 0
    assert "decisions were accepted; the interval is wide" in capsys.readouterr().err
    assert main(["replay", "linucb", "--log", log, *COLUMNS, "--propensity", "p", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["warnings"]


def test_several_systems_are_compared_and_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = str(write_log(tmp_path / "log.csv", n=600))
    words = ["replay", "uniform", "linucb:alpha=0.3", "--log", log, *COLUMNS, "--propensity", "p", "--greedy"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 0
    text = capsys.readouterr().out
    assert "linucb:alpha=0.3 − uniform: +" in text
    assert "95 %, paired" in text
    assert "taking the largest estimated mean" in text
    page = (tmp_path / "out/report.html").read_text()
    assert "Paired differences" in page
    assert "data:image/png" in page
    assert "seed 0" in page
    assert "<code>fedbandit replay uniform linucb:alpha=0.3 --log" in page
    assert ">better<" in page
    assert json.loads((tmp_path / "out/report.json").read_text())["baseline"] == "uniform"
    found = report(capsys, *words)
    assert [one["system"] for one in found["systems"]] == ["linucb:alpha=0.3", "uniform"]
    assert found["systems"][0]["difference"]["verdict"] == "better"
    assert found["systems"][1]["estimates"][1]["value"] != found["systems"][0]["estimates"][1]["value"]
    assert "A table needs --client, --features" in refusal(
        capsys, "replay", "linucb", "--log", log, "--reward", "click"
    )


def test_json_lines_are_a_table_if_columns_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = [
        {"user": k % 3, "age": k % 7 / 7, "device": "ab"[k % 2], "page": "xyz"[k * k % 5 % 3], "click": k % 2, "p": 0.4}
        for k in range(300)
    ]
    path = tmp_path / "clicks.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    names = ("--client", "user", "--features", "age, device", "--reward", "click", "--action", "page")
    words = ("replay", "linucb", "--log", str(path), *names, "--propensity", "p")
    assert report(capsys, *words)["decisions"] == 150
    path.write_text("\n".join(map(json.dumps, [*rows[:5], {**rows[5], "click": None}, *rows[6:]])))
    assert "line 6: click is missing" in refusal(capsys, *words)
    path.write_text("\n".join(map(json.dumps, rows))[:-9])
    assert "line 300: a line of a table is an object" in refusal(capsys, *words)
    assert "an object with an id" in refusal(capsys, "replay", "linucb", "--log", str(path))


def test_refusals_of_replay_say_what_to_do(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.csv", n=60)
    words = ("--log", str(log), *COLUMNS, "--propensity", "p")
    assert "it is a system's keyword: write linucb:alpha=0.3" in refusal(
        capsys, "replay", "linucb", *words, "--alpha=0.3"
    )
    lines = log.read_text().splitlines()
    log.write_text("\n".join([*lines[:-1], lines[-1][:20]]))
    assert "is the file cut" in refusal(capsys, "replay", "linucb", *words)
    pages = tmp_path / "pages.csv"
    pages.write_text("user,age,page,click\n" + "".join(f"1,0.{k % 9},{'ab'[k % 2]},0\n" for k in range(99)))
    names = ("--client", "user", "--features", "age", "--reward", "click", "--action", "page", "--logged", "uniform")
    sentence = "refused where each action has a θ of its own"
    assert sentence in refusal(capsys, "replay", "feducb:epsilon=1", "--log", str(pages), *names)
    pages.write_text(pages.read_text() + "1,0.1,a,\n")
    assert "line 101: click is missing, but must be" in refusal(capsys, "replay", "linucb", "--log", str(pages), *names)
