"""A client's own log: what is written is read again, whoever wrote it, and nothing else is."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.environments import DecisionLog, read_decision_log
from fedbandit.errors import FedbanditError
from fedbandit.evaluation import evaluate_frozen
from fedbandit.machines.client import ClientMachine
from fedbandit.types import Array, Ints

THETA = np.array([0.6, -0.3, 0.2])


def live(folder: Path, policy: str, n: int, seed: int = 0, **options: int) -> tuple[Array, Ints]:
    """A client that decides for n users and logs it; the contexts that were offered, and its choices."""
    rng = np.random.default_rng(seed)
    client = ClientMachine(0, fb.linucb(policy=policy), fb.World(n_clients=1, dim=3, horizon=n, noise=0.5), seed)
    log = DecisionLog(folder, client="here", **options)
    offered, chosen = rng.uniform(-0.5, 0.5, (n, 4, 3)), np.zeros(n, dtype=np.int64)
    for t, arms in enumerate(offered):
        p = client.propensities(arms)
        choice = client.select(arms)
        chosen[t] = choice.arm
        log.decided(f"{seed}-{t}", arms, choice.arm, float(p[choice.arm]), known=True, policy=policy, at=float(t))
        reward = float(rng.random() < 0.5 + arms[choice.arm] @ THETA)
        client.observe(choice.number, reward)
        log.rewarded(f"{seed}-{t}", reward)
    log.close()
    return offered, chosen


def test_what_is_written_is_read(tmp_path: Path) -> None:
    offered, chosen = live(tmp_path, "igw", 50, most_bytes=5_000)
    assert len(list(tmp_path.glob("*.jsonl"))) > 3, "files are rotated"
    log = read_decision_log(tmp_path)
    np.testing.assert_array_equal(np.stack([log.offered(t) for t in range(50)]), offered)
    np.testing.assert_array_equal(log.chosen, chosen)
    assert log.client_names == ("here",)
    assert log.notes == ()
    assert not log.uniform


def test_a_deployed_policy_is_evaluated_by_its_own_log(tmp_path: Path) -> None:
    """Deploy, log, evaluate: the value of other policies, learnt from the first half, against the truth."""
    offered, _ = live(tmp_path, "igw", 4000)
    log = read_decision_log(tmp_path)
    means = 0.5 + offered[2000:] @ THETA
    random = evaluate_frozen(fb.uniform(), log)
    assert random.estimates[0].covers(float(means.mean()))
    greedy = evaluate_frozen(fb.linucb(), log, greedy=True)
    assert greedy.estimates[0].covers(float(means[np.arange(2000), greedy.arms].mean()))
    assert greedy.estimates[0].interval[0] > means.mean() + 0.1, "it learnt"


def test_a_log_without_chance_says_nothing_about_others(tmp_path: Path) -> None:
    live(tmp_path, "ucb", 40)
    with pytest.raises(FedbanditError, match="chosen with probability 1"):
        evaluate_frozen(fb.linucb(), read_decision_log(tmp_path))


def test_old_files_go_and_writers_do_not_meet(tmp_path: Path) -> None:
    live(tmp_path, "igw", 60, most_bytes=3_000, keep=2)
    assert len(list(tmp_path.glob("*.jsonl"))) <= 3
    several = [threading.Thread(target=live, args=(tmp_path / "many", "igw", 30, seed)) for seed in range(4)]
    for thread in several:
        thread.start()
    for thread in several:
        thread.join()
    assert read_decision_log(tmp_path / "many").n_decisions == 120


def test_a_cut_log_loses_its_last_line_only(tmp_path: Path) -> None:
    live(tmp_path, "igw", 10)
    (path,) = tmp_path.glob("*.jsonl")
    path.write_bytes(path.read_bytes()[:-5])
    log = read_decision_log(path)
    assert log.n_decisions == 9
    assert "was cut" in log.notes[0]
    assert "1 of 10 decisions have no reward" in log.notes[1]
    assert read_decision_log(path, default_reward=0.0).n_decisions == 10


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("no JSON", "line 1: this is not JSON"),
        ("[1]", "line 1: a line of a decision log is an object with an id"),
        ('{"id": "a", "arms": [[1]], "chosen": 3, "propensity": 1}', "chosen below K"),
        ('{"id": "a", "arms": [[1]], "chosen": 0, "propensity": 0}', "propensity in"),
        ('{"id": "a", "arms": 3, "chosen": 0, "propensity": 1}', "arms"),
    ],
)
def test_what_is_no_decision_is_refused(tmp_path: Path, line: str, sentence: str) -> None:
    (tmp_path / "decisions-000001.jsonl").write_text(line + "\n")
    with pytest.raises(FedbanditError, match=sentence):
        read_decision_log(tmp_path)


def test_lengths_that_differ_are_refused(tmp_path: Path) -> None:
    lines = [{"id": str(d), "arms": [[0.1] * d], "chosen": 0, "propensity": 1.0} for d in (2, 3)]
    lines += [{"id": str(d), "reward": 1.0} for d in (2, 3)]
    (tmp_path / "decisions-000001.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(FedbanditError, match="line 2: contexts have length 3, the first ones 2"):
        read_decision_log(tmp_path)
    with pytest.raises(FedbanditError, match="There is no decision log"):
        read_decision_log(tmp_path / "nowhere")


FULL = """
import resource, signal, sys
import numpy as np
from fedbandit.environments import DecisionLog
from fedbandit.errors import FedbanditError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
log = DecisionLog(sys.argv[1], client="here", most_bytes=2000)
def decide(k):
    log.decided(f"id-{k}", np.eye(2), 0, 1.0, known=True, policy="ucb", at=float(k))
    log.rewarded(f"id-{k}", 1.0)
decide(0)
for k in range(1, 8):
    resource.setrlimit(resource.RLIMIT_FSIZE, ((0, 300, 700)[k % 3], hard))
    for _ in range(20):
        try:
            log.decided(f"lost-{k}", np.eye(2), 0, 1.0, known=True, policy="ucb", at=0.0)
        except FedbanditError as error:
            assert "cannot be written: " in str(error)
        else:
            log.rewarded(f"lost-{k}", 0.0) if k % 3 == 0 else None
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    decide(k)
log.close()
"""


def test_on_a_full_disk_lines_are_left_out_whole(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], check=True, timeout=120)
    log = read_decision_log(tmp_path, default_reward=0.0)
    assert not [note for note in log.notes if "cut" in note]
    assert log.rewards.sum() == 8
