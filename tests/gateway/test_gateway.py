"""Events are ranked and rewarded once, survive, expire, and tell what shadows would have earned."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.cli.main import main
from fedbandit.environments import read_decision_log
from fedbandit.environments.decision_log import DecisionLog
from fedbandit.errors import FedbanditError
from fedbandit.evaluation import evaluate_frozen
from fedbandit.features import Features
from fedbandit.gateway.events import Events
from fedbandit.gateway.gateway import Gateway
from fedbandit.gateway.requests import EventRefusal
from fedbandit.network.client.client import Client
from fedbandit.network.coordinator.config import load_config
from fedbandit.network.coordinator.host import Host
from fedbandit.network.invitation import Agreement, Schema
from fedbandit.network.stores import MemoryStore, StoreError
from tests.gateway.application import ACTIONS, FEATURES, open_alone, tastes, visit
from tests.network.servers import make_host, served


def refusal(call: Any, *arguments: Any) -> tuple[str, str]:
    with pytest.raises(EventRefusal) as error:
        call(*arguments)
    return error.value.kind, str(error.value)


def test_an_event_is_ranked_and_rewarded_once(tmp_path: Path) -> None:
    gateway = open_alone(tmp_path)
    answer = gateway.rank(visit(0.3, "e1"))
    assert gateway.rank(visit(0.3, "e1")) == answer
    assert answer["ranking"][0]["id"] == answer["chosen"]
    assert sum(one["propensity"] for one in answer["ranking"]) == pytest.approx(1)
    assert answer["propensity"] == answer["ranking"][0]["propensity"]
    assert refusal(gateway.rank, visit(0.4, "e1"))[0] == "conflict"
    assert gateway.reward({"event_id": "e1", "reward": 1})["repeated"] is False
    assert gateway.reward({"event_id": "e1", "reward": 1})["repeated"] is True
    kind, sentence = refusal(gateway.reward, {"event_id": "e1", "reward": 0})
    assert (kind, sentence) == ("conflict", "Event 'e1' has the reward 1, not 0.")
    assert gateway.client.status()["observed"] == 1
    gateway.close()
    again = open_alone(tmp_path)
    assert again.rank(visit(0.3, "e1")) == answer
    assert again.reward({"event_id": "e1", "reward": 1})["repeated"] is True
    assert again.client.status()["observed"] == 1
    again.close()


def test_it_learns_what_visitors_like(tmp_path: Path) -> None:
    gateway, rng, wins = open_alone(tmp_path), np.random.default_rng(0), []
    for _ in range(600):
        age = float(rng.random())
        answer = gateway.rank(visit(age))
        worth = dict(zip(("book", "film", "game"), tastes(age, 0.5), strict=True))
        gateway.reward({"event_id": answer["event_id"], "reward": float(rng.random() < worth[answer["chosen"]])})
        wins.append(worth[answer["chosen"]])
    assert np.mean(wins[-200:]) > 0.55  # random actions earn 0.47, the best 0.65
    gateway.close()
    log = read_decision_log(tmp_path / "log")
    assert (log.n_decisions, log.dim) == (600, FEATURES.dim)
    assert main(["replay", "linucb", "linucb:policy=greedy", "--log", str(tmp_path / "log"), "--json"]) == 0


def test_deadlines(tmp_path: Path) -> None:
    now = [1000.0]
    gateway = open_alone(tmp_path, deadline=60.0, default_reward=0.0, remember=500.0, clock=lambda: now[0])
    for id in ("in time", "late", "never"):
        gateway.rank(visit(0.5, id))
    now[0] = 1059.0
    gateway.reward({"event_id": "in time", "reward": 1})
    now[0] = 1060.0
    kind, sentence = refusal(gateway.reward, {"event_id": "late", "reward": 1})
    assert (kind, sentence) == (
        "expired", "The deadline of event 'late' is over, and its default reward 0 was learnt.",
    )  # fmt: skip
    assert gateway.expire() == 1
    assert gateway.counts["default"] == 2
    assert gateway.client.status()["observed"] == 3
    now[0] = 2000.0
    gateway.expire()
    kind, sentence = refusal(gateway.reward, {"event_id": "late", "reward": 1})
    assert (kind, sentence) == ("unknown", "There is no event 'late': it was not ranked here, or long ago.")
    gateway.close()
    assert sorted(read_decision_log(tmp_path / "log").rewards) == [0, 0, 1]


def test_without_a_default_nothing_is_learnt() -> None:
    now = [0.0]
    gateway = open_alone(deadline=60.0, clock=lambda: now[0])
    gateway.rank(visit(0.5, "e"))
    now[0] = 61.0
    assert gateway.expire() == 1
    sentence = "The deadline of event 'e' is over, and nothing was learnt."
    assert refusal(gateway.reward, {"event_id": "e", "reward": 1}) == ("expired", sentence)
    assert gateway.client.status()["observed"] == 0
    gateway.close()


def test_more_events_wait_than_a_client_keeps_choices() -> None:
    gateway = open_alone()
    gateway.client._durable.machine._waiting = 5
    for k in range(20):
        gateway.rank(visit(0.5, f"e{k}"))
    for k in range(20):
        gateway.reward({"event_id": f"e{k}", "reward": 1})
    assert gateway.client.status()["observed"] == 20
    gateway.close()


@pytest.mark.parametrize("crash", ["before the client learnt", "after the client learnt"])
def test_a_crash_while_learning_learns_once(crash: str, tmp_path: Path) -> None:
    gateway = open_alone(tmp_path)
    gateway.rank(visit(0.5, "e"))
    event = gateway.events.find("e")
    assert event is not None
    gateway.events.move("e", "learning", 1.0, None)
    if crash.startswith("after"):
        gateway.client.redeem(1.0, event.choice, event.features)
    gateway.close()
    again = open_alone(tmp_path)
    assert again.client.status()["observed"] == 1
    assert again.reward({"event_id": "e", "reward": 1})["repeated"] is True
    again.close()
    assert read_decision_log(tmp_path / "log").rewards.tolist() == [1]


def test_shadow_learns_from_the_callers_choice_and_tells_what_it_would_have_earned() -> None:
    """Callers choose at random; the truth is what the gateway's own choices were worth when it made them."""
    covered, runs = 0, 20
    for seed in range(runs):
        gateway, rng, worth = open_alone(mode="shadow"), np.random.default_rng(seed), []
        for t in range(150):
            age = float(rng.random())
            own = int(rng.integers(3))
            kinds = ("book", "film", "game")
            answer = gateway.rank(visit(age, f"e{t}", choice=kinds[own], propensity=1 / 3))
            assert answer["chosen"] == kinds[own]
            p = {one["id"]: one["propensity"] for one in answer["ranking"]}
            worth.append(sum(p[kind] * tastes(age, 0.5)[k] for k, kind in enumerate(kinds)))
            gateway.reward({"event_id": f"e{t}", "reward": float(rng.random() < tastes(age, 0.5)[own])})
        found = gateway.report()
        assert gateway.client.status()["observed"] == 150
        assert 0.2 < found["agreement"] < 0.5
        would = found["would_have_earned"]
        covered += would["low"] <= np.mean(worth) <= would["high"]
        gateway.close()
    assert covered >= runs - 4


def test_shadow_without_propensities_admits_that_it_does_not_know() -> None:
    gateway = open_alone(mode="shadow")
    for t in range(3):
        gateway.rank(visit(0.5, f"e{t}", choice="film"))
        gateway.reward({"event_id": f"e{t}", "reward": t % 2})
    found = gateway.report()
    assert found["would_have_earned"] is None
    assert "give the propensity of your choice" in found["why_not"]
    assert found["earned"]["value"] == pytest.approx(1 / 3)
    assert refusal(gateway.rank, visit(0.5))[1] == (
        "In shadow mode an event needs choice, the id of the action you take."
    )
    assert refusal(gateway.rank, visit(0.5, choice="flm"))[1] == "There is no action 'flm'; did you mean 'film'?"
    assert refusal(gateway.rank, visit(0.5, choice="film", propensity=0))[1] == (
        "propensity is 0, but must be a number in (0, 1], of at least 1e-09."
    )
    gateway.close()


def test_threads_get_one_answer_for_one_event() -> None:
    gateway = open_alone(explore=1.0)
    answers: list[tuple[int, str]] = []

    def ask() -> None:
        for t in range(30):
            answers.append((t, gateway.rank(visit(0.5, f"e{t}"))["chosen"]))
            gateway.reward({"event_id": f"e{t}", "reward": 1})

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 120
    assert len(set(answers)) == 30
    assert gateway.client.status()["observed"] == 30
    gateway.close()


def test_a_gateway_is_a_member_of_a_federation(tmp_path: Path) -> None:
    host = make_host()
    with served(host) as url:
        client = Client(url, federation="shops", name="gateway", state=tmp_path / "c.db")
        gateway = Gateway(client, Events(tmp_path / "g.db"))
        rng = np.random.default_rng(0)
        for t in range(60):
            rows = rng.uniform(-0.5, 0.5, (4, 2)).tolist()
            actions = [{"id": k, "features": row} for k, row in enumerate(rows)]
            gateway.rank({"event_id": t, "actions": actions, "context": [0.2]})
            gateway.reward({"event_id": t, "reward": 0.5})
        assert client.flush()
        pending = client.status()["pending"]
        assert host.federations["shops"].federation.machine.gathered().n == 60 - pending > 0
        gateway.close()


ONE = [{"id": "a", "features": [0.1, 0.2, 0.3]}]


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ([], "the request is [], but must be an object with event_id, actions, context, choice, propensity."),
        ({"actions": []}, "actions is [], but must be a list of 1 to 10,000 actions."),
        ({"action": ONE}, "There is no key of the request 'action'; did you mean 'actions'?"),
        ({"actions": ["a"]}, "an action is 'a', but must be an object with id, features."),
        ({"actions": [{"features": [1]}]}, "an action's id is None, but must be a text of 1 to 200 characters."),
        ({"actions": ONE * 2}, "Action 'a' occurs twice."),
        ({"actions": ONE, "event_id": ""}, "event_id is '', but must be a text of 1 to 200 characters."),
        ({"actions": ONE, "context": [0.5]}, "the number of features of action 'a' is 4, but must be 3, with the "),
        ({"actions": ONE, "context": {"age": 3}}, "context is {'age': 3}, but must be a list of finite numbers."),
        ({"actions": [{"id": "a", "features": [0.1, "x", 0.3]}]}, "the features of action 'a' is [0.1, 'x', 0.3], but"),
        ({"actions": [{"id": "a", "features": [0, 0, 10**400]}]}, "the features of action 'a' is [0, 0, 1000"),
        ({"actions": [{"id": "a", "features": [0, 0, 3]}]}, "the norm of a context is 3.0, but must be at most 1."),
        ({"actions": ONE, "choice": "a"}, "choice is for shadow mode, and this gateway is online."),
    ],
)
def test_bad_requests_are_one_sentence(asked: Any, sentence: str) -> None:
    agreement = Agreement("linucb", world=fb.World(n_clients=1, dim=3, horizon=100))
    gateway = Gateway(Client(None, agreement=agreement), Events())
    kind, said = refusal(gateway.rank, asked)
    assert kind == "malformed"
    assert said.startswith(sentence)
    assert gateway.events.counts() == {}
    gateway.close()


def test_bad_rewards_are_one_sentence() -> None:
    gateway = open_alone()
    gateway.rank(visit(0.5, "e"))
    for reward, sentence in (
        (None, "reward is None, but must be a finite number."),
        (True, "reward is 'true', but must be a finite number."),
        (float("nan"), "reward is nan, but must be a finite number."),
        (7, "reward is 7, but must be within ±1, the --reward-bound of this gateway."),
    ):
        assert refusal(gateway.reward, {"event_id": "e", "reward": reward}) == ("malformed", sentence)
    assert refusal(gateway.reward, {"reward": 1})[1].startswith("event_id is None")
    assert gateway.reward({"event_id": "e", "reward": 1})["repeated"] is False
    gateway.close()


def test_settings_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    for options, sentence in (
        ({"mode": "apprentice"}, "There is no mode 'apprentice'"),
        ({"explore": 2}, "explore is 2, but must be a probability."),
        ({"default_reward": 3}, "default_reward is 3, but must be within ±1"),
        ({"deadline": 0}, "deadline is 0, but must be a number of seconds > 0."),
        ({"features": Features(action={"x": "boolean"})}, "The federation has agreed on other features than these"),
    ):
        with pytest.raises(FedbanditError, match=sentence[:30]):
            open_alone(**options)
    first = open_alone(tmp_path)
    with pytest.raises(StoreError, match="another gateway has it open"):
        Events(tmp_path / "gateway.db")
    first.close()
    with pytest.raises(FedbanditError, match="to learn alone take linucb"):
        Client(None, agreement=Agreement("async-linucb", world=fb.World(n_clients=1, dim=3, horizon=100)))
    with pytest.raises(FedbanditError, match="needs the URL of a coordinator"):
        Client(None)


def test_one_model_for_each_action(tmp_path: Path) -> None:
    features = Features(context={"age": {"number": [0, 1]}})
    world = fb.World(n_clients=1, dim=features.dim, horizon=10_000, noise=0.5, actions=3)
    agreement = Agreement("linucb", {"policy": "igw"}, world, schema=Schema.of(features))

    def opened() -> Gateway:
        client = Client(None, agreement=agreement, state=tmp_path / "c.db")
        return Gateway(client, Events(tmp_path / "g.db"), decisions=DecisionLog(tmp_path / "log"))

    gateway, rng, wins = opened(), np.random.default_rng(0), []
    for t in range(400):
        if t == 200:
            gateway.close()
            gateway = opened()
        age = float(rng.random())
        actions = [{"id": id} for id in ("game", "book", "film")]
        chosen = gateway.rank({"event_id": t, "actions": actions, "context": {"age": age}})["chosen"]
        worth = tastes(age, 0.6)[ACTIONS.index(chosen)]
        gateway.reward({"event_id": t, "reward": float(rng.random() < worth)})
        wins.append(worth)
    assert gateway.client.status()["observed"] == 400
    assert np.mean(wins[-150:]) > 0.63  # random actions earn 0.56, the best 0.78
    kind, sentence = refusal(gateway.rank, {"actions": [{"id": "book"}, {"id": 7}], "context": {"age": 0.5}})
    assert (kind, sentence) == (
        "malformed", "There is no model for action '7': all 3 are taken by others (--actions).",
    )  # fmt: skip
    assert gateway.events.models == {"game": 0, "book": 1, "film": 2}, "an id takes a free model, and keeps it"
    gateway.close()
    log = read_decision_log(tmp_path / "log")
    assert (log.n_decisions, log.n_actions) == (400, 3)
    found = evaluate_frozen(fb.linucb(), log, greedy=True)
    assert found.estimates[1].value > 0.56


def test_what_is_refused_takes_no_model() -> None:
    world = fb.World(n_clients=1, dim=2, horizon=100, actions=2)
    gateway = Gateway(Client(None, agreement=Agreement("linucb", {}, world)), Events())
    too_long = {"actions": [{"id": "a", "features": [3, 4]}]}
    assert refusal(gateway.rank, too_long)[0] == "malformed"
    assert gateway.events.models == {}
    for id in ("b", 1):
        gateway.rank({"actions": [{"id": id, "features": [0.5, 0.5]}]})
    assert gateway.events.models == {"b": 0, "1": 1}
    gateway.close()


def test_a_federation_names_its_actions(tmp_path: Path) -> None:
    """All members mean the same by a name: one that the terms do not have is refused."""
    config = tmp_path / "federation.toml"
    config.write_text(
        '[federations.shops]\nsystem = "async-linucb"\nclients = 2\ndim = 2\nhorizon = 1000\n'
        'actions = ["book", "film", "game"]\nkeywords = {gamma_upload = 1.1}\n'
    )
    host = Host(load_config(config), MemoryStore())
    with served(host) as url:
        gateway = Gateway(Client(url, federation="shops", name="gateway"), Events())
        with Client(url, federation="shops", name="phone") as phone:
            for t in range(20):
                actions = [{"id": id, "features": [0.5, 0.1 * k]} for k, id in enumerate(("film", "game"))]
                chosen = gateway.rank({"event_id": t, "actions": actions})["chosen"]
                gateway.reward({"event_id": t, "reward": 1.0 if chosen == "film" else 0.0})
                arm = phone.select([[0.5, 0.1], [0.5, 0.2]], actions=["game", "book"])
                phone.observe(0.0 if arm == 0 else 1.0, arm)
            assert gateway.client.flush()
            assert phone.flush()
            with pytest.raises(FedbanditError, match="There is no action 'disc'"):
                phone.select([0.5, 0.5], actions=["disc"])
            sums = host.federations["shops"].federation.machine.gathered()
            pending = gateway.client.status()["pending"] + phone.status()["pending"]
            assert sums.n == 40 - pending
            assert sums.b[1, 0] > 0, "films were liked"
            assert sums.b[2, 0] == 0, "games were not, by anybody"
        kind, sentence = refusal(gateway.rank, {"actions": [{"id": "disc", "features": [0.5, 0.5]}]})
        assert (kind, sentence[:25]) == ("malformed", "There is no action 'disc'")
        gateway.close()
    config.write_text(config.read_text().replace('"game"', '"book"'))
    with pytest.raises(FedbanditError, match=r"action_names is .* but must be the names of 3 actions, each once"):
        load_config(config)


def test_features_that_cannot_change_a_choice_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    columns = tmp_path / "columns.toml"
    columns.write_text("[context]\nage = {number = [0, 1]}\n")
    assert main(["gateway", "--features", str(columns), "--port", "0"]) == 2
    assert "columns of the situation only, which cannot change a choice" in capsys.readouterr().err
