"""Run the corpus against a client: `python -m tests.vectors.run`.

A case is a life: events in order, each with what has to come of it. Frames are compared byte for byte where a case is
`exact`; otherwise whole numbers are, and statistics to 1e-9, as they depend on the order of additions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fedbandit.errors import FedbanditError
from fedbandit.features import Features
from fedbandit.messages import Upload, decode, encode
from fedbandit.network.envelope import extend, unseal
from fedbandit.streams import Draw
from fedbandit.sums import in_blocks
from tests.vectors.client import CANNOT, CorpusClient

FOLDER = Path(__file__).parent


class Client(Protocol):
    """What a client has to do for the corpus."""

    def open(self, incarnation: str, nonce: str) -> None: ...
    def connect(self) -> list[str]: ...
    def disconnect(self) -> None: ...
    def select(self, label: str, arms: Any, explore: float = 0.0) -> tuple[int, float]: ...
    def observe(self, label: str, reward: Any) -> list[str]: ...
    def forget(self, label: str) -> None: ...
    def flush(self) -> None: ...
    def receive(self, message: str) -> list[str]: ...
    def refusal(self, text: str) -> tuple[str, bool, str]: ...
    def status(self) -> dict[str, Any]: ...


def cases() -> list[Path]:
    """All files of the corpus."""
    return sorted(FOLDER.glob("*.json"))


def read(path: Path) -> dict[str, Any]:
    """One file."""
    case: dict[str, Any] = json.loads(path.read_text())
    return case


def run(case: dict[str, Any], make: Callable[[dict[str, Any]], Client] = CorpusClient) -> None:
    """Raise AssertionError where the client does something else."""
    kinds = {
        "life": _run_life,
        "messages": _run_messages,
        "draws": _run_draws,
        "chain": _run_chain,
        "features": _run_features,
    }
    kinds[case["kind"]](case, make)


def skipped(case: dict[str, Any]) -> str | None:
    """Why this client skips a case."""
    return next((f"{need}: {CANNOT[need]}" for need in case["needs"] if need in CANNOT), None)


def _run_life(case: dict[str, Any], make: Callable[[dict[str, Any]], Client]) -> None:
    client = make(case["invitation"])
    chain = _Chain()
    for k, event in enumerate(case["events"]):
        what = f"{case['name']}, event {k} ({event['do']})"
        try:
            found = _do(client, event)
        except FedbanditError as error:
            if not event.get("refused"):
                raise AssertionError(f"{what} was refused: {error}") from None
            continue
        assert not event.get("refused"), f"{what} was not refused"
        for name, value in found.items():
            if name == "sends":
                chain.check(what, value, event["sends"], exact=case["exact"])
            elif name in ("theta", "propensity"):
                np.testing.assert_allclose(value, event[name], rtol=1e-9, atol=1e-12, err_msg=what)
            else:
                assert value == event[name], f"{what}: {name} is {value}, expected {event[name]}"


def _do(client: Client, event: dict[str, Any]) -> dict[str, Any]:
    match event["do"]:
        case "open":
            client.open(event["incarnation"], event["nonce"])
        case "connect":
            return {"sends": client.connect()}
        case "disconnect":
            client.disconnect()
        case "select":
            arm, propensity = client.select(event["as"], event["arms"], event.get("explore", 0.0))
            return {"arm": arm, "propensity": propensity} if "explore" in event else {"arm": arm}
        case "observe":
            return {"sends": client.observe(event["of"], event["reward"])}
        case "forget":
            client.forget(event["of"])
        case "flush":
            client.flush()
        case "receive":
            return {"sends": client.receive(event["message"])}
        case "refusal":
            kind, transient, owner = client.refusal(event["text"])
            return {"kind": kind, "transient": transient, **({"owner": owner} if owner else {})}
        case "check":
            found = client.status()
            return {name: found[name] for name in event if name != "do"}
        case other:
            raise AssertionError(f"There is no event {other!r}.")
    return {}


class _Chain:
    """Compares frames; where statistics may differ in last bits, the chain must be that of the bytes that were sent."""

    def __init__(self) -> None:
        self.after: dict[int, int] = {0: 0}  # upload → the chain after it

    def check(self, what: str, found: list[str], expected: list[str], *, exact: bool) -> None:
        assert len(found) == len(expected), f"{what} sends {len(found)} frames, expected {len(expected)}"
        for one, other in zip(found, expected, strict=True):
            if exact:
                assert one == other, f"{what} sends\n{one}, expected\n{other}"
                continue
            (ours, mine), (theirs, data) = unseal(bytes.fromhex(one)), unseal(bytes.fromhex(other))
            for name in ("incarnation", "epoch", "nonce", "sequence", "terms"):
                assert getattr(ours, name) == getattr(theirs, name), f"{what}: {name} differs"
            message, wanted = decode(mine), decode(data)
            assert type(message) is type(wanted), f"{what}: another kind of message"
            assert mine[:32] == data[:32], f"{what}: the header differs"
            np.testing.assert_allclose(
                np.frombuffer(mine, "<f8", offset=32), np.frombuffer(data, "<f8", offset=32), rtol=1e-9, atol=1e-9
            )
            sequence = int.from_bytes(mine[16:24], "little")
            if message.kind == Upload.kind:  # an upload stands on the chain of those before it
                assert ours.chain == self.after[sequence - 1], f"{what}: the chain differs"
                digest = hashlib.sha256(ours.chain.to_bytes(16, "little") + mine).digest()[:16]
                self.after[sequence] = int.from_bytes(digest, "little")
            else:
                assert ours.chain == self.after[ours.sequence], f"{what}: the chain differs"


def _run_messages(case: dict[str, Any], _: object) -> None:
    for entry in case["messages"]:
        message = decode(bytes.fromhex(entry["hex"]))
        assert type(message).__name__ == entry["kind"], entry["hex"]
        assert fields_of(message) == entry["fields"], entry["hex"]
        assert encode(message).hex() == entry["hex"]
    for entry in case["refused"]:
        try:
            decode(bytes.fromhex(entry["hex"]))
        except FedbanditError:
            continue
        raise AssertionError(f"{entry['why']} was not refused: {entry['hex']}")


def fields_of(message: Any) -> dict[str, Any]:
    """The fields of a message as JSON has them; the lower triangle of V row by row."""
    found: dict[str, Any] = {}
    for name in message.__slots__:
        value = getattr(message, name)
        if name == "sums":
            V, b, n = value
            rows, columns = np.tril_indices(b.shape[-1] if b.size else 0)
            if b.ndim == 2:  # in blocks, of the actions that are not zero
                given = in_blocks(value)
                found |= {"length": b.shape[-1], "of": message.actions, "blocks": given.actions.tolist()}
                V, b = given.V, given.b
            found |= {"n": n, "b": b.tolist(), "V": V[..., rows, columns].tolist()}
        elif name == "messages":  # of a local server's models
            found[name] = [{"kind": type(inner).__name__, "fields": fields_of(inner)} for inner in value]
        elif name != "actions" and (name not in ("round", "relayed") or value is not None):  # of other capabilities
            found[name] = list(value) if isinstance(value, tuple) else value
    return found


def _run_draws(case: dict[str, Any], _: object) -> None:
    key = np.array(case["key"], dtype=np.uint64)
    for entry in case["draws"]:
        draw = Draw(key, entry["client"], entry["step"])
        for call in entry["calls"]:
            if "index" in call:
                assert draw.index(call["index"]) == call["is"], entry
            elif "uniform" in call:
                assert draw.uniform() == call["is"], entry
            else:
                np.testing.assert_allclose(draw.normal(call["normal"]), call["is"], rtol=1e-12, atol=1e-15)


def _run_features(case: dict[str, Any], _: object) -> None:
    features = Features.of_json(case["features"])
    for entry in case["contexts"]:
        try:
            found = features.transform(entry["actions"], entry["context"])
        except FedbanditError:
            assert entry.get("refused"), entry
            continue
        assert found.tolist() == entry["is"], entry


def _run_chain(case: dict[str, Any], _: object) -> None:
    chain = 0
    for entry in case["uploads"]:
        chain = extend(chain, bytes.fromhex(entry["upload"]))
        assert chain.to_bytes(16, "little").hex() == entry["chain"], "the chain differs"


if __name__ == "__main__":
    for path in cases():
        case = read(path)
        why = skipped(case)
        if why is None:
            run(case)
        print(f"{path.stem}: {'passed' if why is None else f'skipped, {why}'}")
