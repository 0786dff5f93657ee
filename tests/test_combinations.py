"""Every combination of exported parts runs, learns and keeps groups apart, or is refused with a sentence that helps.

Parts are found by themselves, and so are their variants: whatever a keyword turns on or off, or chooses from a list. A
combination that runs is tried in a world of two groups with opposite tastes; its mirror image, in which everybody wants
the opposite, must lead to other arms. Noise is tiny where a budget can be set, and the same in both: only rewards
differ, so arms differ if and only if rewards are learnt from.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Iterator
from functools import cache
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

import fedbandit as fb
from fedbandit.engine.fast import unknown_part
from fedbandit.environments.block import world_of
from fedbandit.pairs import Part
from fedbandit.policies import POLICIES, UCB, Uniform
from fedbandit.presets.compose import PRESETS, keywords_of
from fedbandit.privacy import PRIVACIES, NoPrivacy, Privacy
from fedbandit.protocols import PROTOCOLS, EventTriggered, MessageProtocol
from fedbandit.structures import STRUCTURES, Everyone, EvidenceClusters, FixedGroups, Structure
from fedbandit.system import System
from fedbandit.types import Ints

N, DIM, ARMS, ROUNDS = 4, 2, 3, 40
LABELS = (0, 1, 0, 1)

NEEDED: dict[str, dict[str, Any]] = {"fixed-groups": {"labels": LABELS}}
"""Keywords without a default; a part that needs one and has none here fails."""

LOUD: dict[str, Any] = {"epsilon": 1e8, "batch": 2, "alpha_split": 0.4, "alpha_merge": 0.3}
"""So little noise, so soon spoken and so sharply told apart that a short run shows what is learnt."""

FURTHER: dict[str, list[dict[str, Any]]] = {
    "synchronous": [{"growth": 1.5}],
    "gossip": [{"growth": None, "threshold": 0.5}, {"topology": "ring", "ttl": 2}],
    "private-statistics": [
        {"calibration": "published", "as_printed": True},
        {"calibration": "published", "width": "printed", "failure": 0.1},
    ],
    "evidence-clusters": [{"recluster": 1.3}],
    "homogeneity-cliques": [{"recluster": 1.3}],
    "laplacian": [{"central": False, "fresh": False}],
    "weighted-graph": [{"central": False, "fresh": False}],
}
"""Variants of two keywords, or of one that is a number."""

SHARE_WITH_ALL = {
    "servers": "all users of a server share a model, and all servers share (Homo of FCLUB)",
}
"""Structures that need not keep groups apart, and why."""

LEARN_LITTLE = {
    "alone": "it shares with nobody",
    "laplacian": "one neighbour takes a parameter from variance 2/3λ to 1/2λ at most: no arm changes here",
}
"""Structures whose clients need not pull other arms than if each were alone, and why."""


def variants(name: str, kind: type) -> Iterator[Any]:
    """A part as it is by default, and with each switch and each choice turned."""
    hints = typing.get_type_hints(kind)
    names = [parameter.name for parameter in dataclasses.fields(kind)]  # in order: workers must collect alike
    given = NEEDED.get(name, {}) | {key: value for key, value in LOUD.items() if key in names}
    first = kind(**given)
    yield first
    for parameter in names:
        hint = hints[parameter]
        choices = (True, False) if hint is bool else typing.get_args(hint)
        if hint is bool or typing.get_origin(hint) is typing.Literal:
            for value in choices:
                if value != getattr(first, parameter):
                    yield from possible(kind, {**given, parameter: value})
    for keywords in FURTHER.get(name, []):
        yield kind(**{**given, **keywords})


def possible(kind: type, keywords: dict[str, Any]) -> Iterator[Any]:
    """The part, unless one keyword does not go with another."""
    try:
        yield kind(**keywords)
    except fb.FedbanditError:
        return


def facts(part: Any, kind: type) -> tuple[Any, ...]:
    """What a part declares, by which pairs are judged."""
    declared = [name for name, value in vars(kind).items() if isinstance(value, property) and name != "reward_rule"]
    basis = part.guarantee().basis if isinstance(part, Privacy) else ""
    return type(part), basis, *(getattr(part, name) for name in declared)


def found(kinds: dict[str, Any], kind: Any) -> tuple[list[Any], list[Any]]:
    """One variant for each set of declared facts; and those that declare nothing new."""
    every = [variant for name, make in kinds.items() for variant in variants(name, make)]
    first = {facts(part, kind): part for part in reversed(every)}
    return list(first.values()), [part for part in every if not any(part is one for one in first.values())]


PROTOCOL_PARTS, MORE_PROTOCOLS = found(PROTOCOLS, MessageProtocol)
STRUCTURE_PARTS, MORE_STRUCTURES = found(STRUCTURES, Structure)
PRIVACY_PARTS, MORE_PRIVACIES = found(PRIVACIES, Privacy)


@cache
def world(sign: int) -> fb.environments.Recorded:
    """Two groups with opposite tastes; sign −1 is the mirror image."""
    rng = np.random.default_rng(0)
    who = np.arange(N * ROUNDS) % N
    X = rng.standard_normal((who.size, ARMS, DIM))
    X /= np.linalg.norm(X, axis=2, keepdims=True)
    taste = sign * np.where(np.array(LABELS)[who] == 0, 1.0, -1.0)
    means = 0.5 + 0.5 * taste[:, None] * X[..., 0]
    graph = 0.5 * (np.array(LABELS)[:, None] == np.array(LABELS))
    known: Any = {"graph": graph, "server_of": (0, 0, 1, 1), "partition": LABELS, "d_global": 1}
    return fb.environments.recorded(who, X, means, means, rounds="all", bound=1.0 + 1e-9, **known)


def named(*parts: Part) -> str:
    """A name by which `arms` knows a system again."""
    return " · ".join(map(repr, parts))


def systems(structure: Structure, policy: fb.policies.Policy) -> Iterator[System]:
    """All that is not refused."""
    for protocol, privacy in product(PROTOCOL_PARTS, PRIVACY_PARTS):
        try:
            yield System(policy, protocol, structure, privacy, name=named(protocol, structure, privacy))
        except fb.FedbanditError:
            continue


@cache
def ran(system: System, sign: int = 1, rounds: int = ROUNDS) -> fb.Result:
    """What it did; anything but a result is a failure that names the system."""
    try:
        return fb.simulate(system, world(sign), rounds, seed=0, engine="plain")
    except Exception as error:
        raise AssertionError(f"{system.name} ended with {error!r}") from error


def arms(system: System, sign: int = 1, rounds: int = ROUNDS) -> Ints:
    """What it pulls."""
    return ran(system, sign, rounds).arms


@pytest.mark.parametrize("structure", STRUCTURE_PARTS, ids=repr)
def test_what_is_not_refused_learns_and_keeps_groups_apart(structure: Structure) -> None:
    tried = list(systems(structure, UCB()))
    assert tried, f"nothing goes with {structure}"
    name = fb.parts.name_of(type(structure))
    for system in tried:
        pulled = arms(system)
        assert not np.array_equal(pulled, arms(system, -1)), f"{system.name} never learns, and does not say so"
        silent = system.protocol.says == "nothing"  # says so
        apart = other_structure(system, FixedGroups(tuple(range(N))))
        if apart is not None and not silent and name not in LEARN_LITTLE:
            assert not np.array_equal(pulled, arms(apart)), f"{system.name} never shares, and does not say so"
        shared = other_structure(system, Everyone())
        if shared is not None and not silent and not isinstance(structure, Everyone) and name not in SHARE_WITH_ALL:
            assert not np.array_equal(pulled, arms(shared)), f"{system.name} pulls the arms of Everyone"


@pytest.mark.parametrize("structure", STRUCTURE_PARTS, ids=repr)
def test_the_fast_engine_does_the_same_wherever_it_runs(structure: Structure) -> None:
    for system in systems(structure, UCB()):
        if unknown_part(system.told(world_of(world(1), ROUNDS))) is not None:
            continue
        compiled, plain = fb.simulate(system, world(1), ROUNDS, seed=0, engine="fast"), ran(system)
        np.testing.assert_array_equal(compiled.arms, plain.arms, err_msg=system.name)
        told, expected = compiled.communication.message_curve, plain.communication.message_curve
        np.testing.assert_array_equal(told, expected, err_msg=system.name)


def other_structure(system: System, structure: Structure) -> System | None:
    """The same system with another structure, if that is not refused."""
    try:
        return dataclasses.replace(system, structure=structure, name=named(system.protocol, structure, system.privacy))
    except fb.FedbanditError:
        return None


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "ucb"])
def test_every_policy_runs_with_whatever_is_not_refused(policy: str) -> None:
    for structure in STRUCTURE_PARTS:
        for system in systems(structure, POLICIES[policy]()):
            arms(system, rounds=6)


@pytest.mark.parametrize("part", [*MORE_PROTOCOLS, *MORE_STRUCTURES, *MORE_PRIVACIES], ids=repr)
def test_variants_that_declare_nothing_new_run_where_the_first_runs(part: Any) -> None:
    def system(protocol: Any, structure: Any, privacy: Any) -> System:
        one, two, three = (part if type(part) is type(other) else other for other in (protocol, structure, privacy))
        return System(UCB(), one, two, three, name=named(one, two, three))

    for protocol, structure, privacy in product(PROTOCOL_PARTS, STRUCTURE_PARTS, PRIVACY_PARTS):
        if type(part) in map(type, (protocol, structure, privacy)):
            try:
                made = system(protocol, structure, privacy)
            except fb.FedbanditError:
                continue
            assert not np.array_equal(arms(made), arms(made, -1)), f"{made.name} never learns"
            return
    pytest.fail(f"no system takes {part}")


def refusals() -> dict[str, tuple[Part, ...]]:
    """Every sentence with which a combination is refused, and the parts."""
    sentences: dict[str, tuple[Part, ...]] = {}
    for parts in product(PROTOCOL_PARTS, STRUCTURE_PARTS, PRIVACY_PARTS):
        try:
            System(UCB(), *parts)
        except fb.FedbanditError as error:
            sentences[str(error)] = parts
    return sentences


def test_a_refusal_names_both_parts_and_what_to_use_instead_by_names_that_exist() -> None:
    exported = {kind.__name__ for kinds in (PROTOCOLS, STRUCTURES, PRIVACIES) for kind in kinds.values()}
    keywords = {
        parameter.name
        for kinds in (PROTOCOLS, STRUCTURES, PRIVACIES)
        for kind in kinds.values()
        for parameter in dataclasses.fields(kind)  # type: ignore[arg-type]
    }
    sentences = refusals()
    assert sentences
    for sentence, parts in sentences.items():
        names = {type(part).__name__ for part in parts}
        pair = re.match(r"(\w+) with (\w+) is refused: ", sentence)
        assert pair, sentence
        assert set(pair.groups()) <= names, sentence
        _, _, instead = sentence.partition("; use ")
        assert instead, sentence
        assert set(re.findall(r"\b[A-Z]\w*[a-z]\w*\b", sentence)) <= exported | {"True", "False"}, sentence
        assert set(re.findall(r"\b(\w+)=", sentence)) <= keywords, sentence
        assert len(sentence) < 320, sentence


TRIED: dict[str, list[Any]] = {
    "privacy": [*PRIVACY_PARTS, *MORE_PRIVACIES],
    "policy": list(POLICIES),
    "threshold": ["theorem", 1.0],
    "delta": [1e-5],
    "gamma_upload": [2.0],
    "gamma_download": [2.0],
    "discount": [0.9],
    "window": [20],
    "topology": ["line"],
    "ttl": [2],
    "width": ["printed"],
    "trust": ["sums", "coordinator"],
    "own": ["exact", "released"],
}
"""Values of presets' keywords that are neither switches nor choices from a list."""


def calls(preset: Any) -> Iterator[dict[str, Any]]:
    """Each value of each keyword, and each two of them."""
    hints = typing.get_type_hints(inspect.unwrap(preset))
    given: list[tuple[str, Any]] = []
    for name in keywords_of(preset):
        hint = hints.get(name)
        choices = (True, False) if hint is bool else typing.get_args(hint) * (typing.get_origin(hint) is typing.Literal)
        given += [(name, value) for value in choices or TRIED.get(name, [])]
    yield from ({name: value} for name, value in given)
    yield from (dict(two) for two in combinations(given, 2) if two[0][0] != two[1][0])


def unanswerable(sentence: str, preset: Any, given: dict[str, Any]) -> str | None:
    """Why whoever called the preset so cannot do what the sentence says; None if they can."""
    theirs = {kind.__name__: kind for kinds in (PROTOCOLS, STRUCTURES, PRIVACIES) for kind in kinds.values()}
    before, _, advice = sentence.partition("; ")
    of_parts = [(part, word) for part, inside in re.findall(r"(\w+)\((.*?)\)", advice)
                for word in re.findall(r"(\w+)=", inside)]  # fmt: skip
    of_parts += [(part, word) for word, part in re.findall(r"(\w+)='\w+' of (\w+)", advice)]
    for part, word in of_parts:
        if part not in theirs or word not in {one.name for one in dataclasses.fields(theirs[part])}:  # type: ignore[arg-type]
            return f"{part} has no {word}"
    plain = re.sub(r"\w+\(.*?\)|\w+='\w+' of \w+", "", advice)
    strange = set(re.findall(r"\b(\w+)=", plain)) - set(keywords_of(preset))
    if strange:
        return f"it has no {strange}"
    pair = re.match(r"(\w+) with (\w+) is refused", before)
    words = set(re.findall(r"\b(\w+)=", advice)) & set(keywords_of(preset))
    if pair and not words and not {type(value).__name__ for value in given.values()} & set(pair.groups()):
        return "neither part is the caller's"
    return None


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "composed"])
def test_a_refusal_of_a_preset_can_be_answered_with_its_own_keywords(name: str) -> None:
    """Not with those of parts that the caller has never seen; `composed` takes parts by name."""
    bad = []
    for given in calls(PRESETS[name]):
        try:
            PRESETS[name](**given)
        except fb.FedbanditError as error:
            why = unanswerable(str(error), PRESETS[name], given)
            bad += [] if why is None else [f"{name}({given}): {why}: {error}"]
    assert not bad, bad[0]


def test_a_refusal_that_cannot_be_answered_would_be_found() -> None:
    """The check on answers can fail: what these presets said before."""
    counts = "PrivateStatistics with Synchronous is refused: its trigger reads raw data; use CountTriggered"
    assert unanswerable(counts, fb.feducb, {"threshold": "theorem"})
    assert unanswerable(f"{counts}, or Gossip with growth=…", fb.feducb, {"threshold": "theorem"})
    everybody = "PublishedSums with WeightedGraph is refused: one place; use WeightedGraph with central=True"
    assert unanswerable(everybody, fb.dp_colin, {"gamma_upload": 2.0})
    assert unanswerable("x; use trust='nobody'", fb.hetofedbandit_async, {"privacy": NoPrivacy()})
    assert unanswerable("x; use Synchronous(central=True)", fb.feducb, {})


def test_a_protocol_that_ignored_groups_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check on groups can fail: gossip without companions is what it was before."""
    monkeypatch.setattr("fedbandit.protocols.PeerNode._shares_with", lambda *_: True)
    groups = next(part for part in STRUCTURE_PARTS if type(part).__name__ == "FixedGroups")
    ran.cache_clear()
    gossip = next(s for s in systems(groups, UCB()) if s.protocol.says == "gossip" and s.privacy == NoPrivacy())
    everyone = dataclasses.replace(gossip, structure=Everyone())
    assert np.array_equal(arms(gossip), arms(everyone))
    ran.cache_clear()


def test_random_arms_are_what_never_learning_looks_like() -> None:
    """The check on learning can fail."""
    assert np.array_equal(arms(System(Uniform())), arms(System(Uniform()), -1))


def test_a_clustering_that_never_looks_for_groups_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check on sharing can fail: without the refusal everybody stays alone."""
    monkeypatch.setattr("fedbandit.structures.EvidenceClusters.asks_to_regroup", True)
    system = System(UCB(), EventTriggered(), EvidenceClusters(), name="never looks")
    assert np.array_equal(arms(system), arms(dataclasses.replace(system, structure=FixedGroups(tuple(range(N))))))
