"""The tables of the corpus: messages, the chain, random numbers, encodings (`tests.vectors.make`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

import fedbandit as fb
from fedbandit.errors import FedbanditError
from fedbandit.messages import (
    Collect,
    Download,
    Join,
    Message,
    Recall,
    Receipt,
    Request,
    Restate,
    Threshold,
    Upload,
    decode,
    encode,
)
from fedbandit.network.envelope import extend
from fedbandit.server_messages import FromServer, ToServer
from fedbandit.streams import Draw, policy_key
from fedbandit.sums import BlockSums, FactoredSums, Relayed, Slack, Sums, factored
from tests.vectors.run import FOLDER, fields_of


def factors() -> None:
    """Uploads as factors."""
    X = np.array([[0.0, 0.75, 0.0, 0.5, 0.0, 0.25], [0.0, 0.375, 0.5, 0.25, 0.0, 0.125]])
    few = factored(Sums(X.T @ X, X.T @ np.array([0.5, -0.25]), 2))
    assert isinstance(few, FactoredSums)
    known = [Upload(3, 5, few, 0.5), Upload(0, 1, FactoredSums(few.L[:, :1], few.c[:1], 1), -1e300)]
    data = encode(known[0])
    nan = np.array([np.nan]).tobytes()
    refused = [
        ("cut short", data[:-1]),
        ("too long", data + b"\0"),
        ("another rank", data[:24] + b"\x03" + data[25:]),
        ("no rank", data[:24] + b"\0" + data[25:]),
        ("a factor that is none", data[:48] + nan + data[56:]),
        ("a download as a factor", data[:3] + b"\x84" + data[4:]),
    ]
    what = "Uploads as factors, V = LLᵀ and b = Lc, and bytes that are none."
    _write_messages("factors", what, ["factors"], known, refused)


def blocks() -> None:
    """Statistics in blocks."""
    V = np.array([[[1.5, 0.25], [0.25, 2.0]], [[0.5, 0.0], [0.0, 0.25]]])
    some = BlockSums(V, np.array([[0.5, -1.0], [0.25, 0.125]]), 3, np.array([1, 4]))
    none = BlockSums(V[:0], some.b[:0], 0, some.actions[:0])
    known: list[Message] = [
        Upload(3, 5, some, 0.75, 6),
        Upload(0, 1, none, 0.0, 6),
        Download(3, 18, 5, some, actions=6),
        Restate(3, 5, 4, some, 0.5, 6),
    ]
    data = encode(known[0])
    nan = np.array([np.nan]).tobytes()
    refused = [
        ("cut short", data[:-1]),
        ("too long", data + b"\0"),
        ("no blocks", data[:48]),
        ("more blocks than there are", data[:52] + b"\x03" + data[53:]),
        ("actions that do not ascend", data[:64] + b"\x01" + data[65:]),
        ("an action beyond the last", data[:64] + b"\x06" + data[65:]),
        ("statistics that are none", data[:72] + nan + data[80:]),
        ("no blocks, of more features than anybody has", encode(known[1])[:6] + b"\xff" + encode(known[1])[7:]),
        ("a receipt in blocks", data[:3] + b"\x23" + data[4:]),
    ]
    _write_messages(
        "blocks", "Statistics of some actions, each with a model of its own.", ["per-action"], known, refused
    )


def dated() -> None:
    """Statistics in the units of a round."""
    sums = Sums(np.array([[1.5, 0.25], [0.25, 2.0]]), np.array([0.5, -1.0]), 3)
    some = BlockSums(sums.V[None], sums.b[None], 3, np.array([4]))
    known: list[Message] = [
        Upload(3, 5, sums, 0.75, round=9),
        Upload(3, 6, some, 0.75, 6, round=2**40),
        Download(3, 18, 5, sums, round=9),
        Restate(3, 5, 4, sums, 0.5, round=0),
    ]
    data = encode(known[0])
    refused = [
        ("cut short", data[:-1]),
        ("too long", data + b"\0"),
        ("without its round", data[:40] + data[48:]),
        ("a receipt with a round", data[:3] + b"\x43" + data[4:]),
    ]
    _write_messages("dated", "Statistics of models that forget, each with its round.", ["forgetting"], known, refused)


def relays() -> None:
    """What relays of private federations say."""
    sums = Sums(np.array([[1.5, 0.25], [0.25, 2.0]]), np.array([0.5, -1.0]), 3)
    known: list[Message] = [
        Upload(3, 5, sums, 0.75, relayed=Relayed(2.5, 2)),
        Restate(3, 5, 4, sums, 0.5, relayed=Relayed(0.0, 0)),
    ]
    data = encode(known[0])
    refused = [("cut short", data[:-1]), ("too long", data + b"\0")]
    _write_messages("relays", "Uploads of relays, with the noise that is in them.", ["relay"], known, refused)


def servers() -> None:
    """What local servers say."""
    sums = Sums(np.array([[1.5, 0.25], [0.25, 2.0]]), np.array([0.5, -1.0]), 3)
    known: list[Message] = [
        FromServer(1, 7, 2, (Upload(4, 7, sums, 0.5),)),
        FromServer(1, 8, 3, (Upload(4, 0, sums, 0.5), Upload(6, 0, sums, 0.25)), report=True),
        FromServer(1, 0, 2, (Join(4, 17), Join(6), Request(4, 12.5))),
        ToServer(1, 2, (Download(4, 18, 7, sums), Threshold(6, 0.75))),
        ToServer(1, 3, (), renewal=True),
        ToServer(1, 4, (Collect(4, 4), Collect(6, 4))),
    ]
    data, other = encode(known[0]), encode(known[3])
    refused = [
        ("cut short", data[:-1]),
        ("too long", data + b"\0"),
        ("a part that is longer than it is", data[:40] + b"\xff" + data[41:]),
        ("a download from a server", data[:47] + b"\x04" + data[48:]),
        ("an upload to a server", other[:47] + b"\x02" + other[48:]),
    ]
    _write_messages(
        "servers", "Messages of local servers: those of their models inside.", ["local-server"], known, refused
    )


def _write_messages(
    name: str, what: str, needs: list[str], known: Sequence[Message], refused: list[tuple[str, bytes]]
) -> None:
    entries = [
        {"kind": type(m).__name__, "fields": fields_of(decode(encode(m))), "hex": encode(m).hex()} for m in known
    ]
    bad = [{"why": why, "hex": data.hex()} for why, data in refused]
    _write(name, {"kind": "messages", "what": what, "needs": needs, "messages": entries, "refused": bad})


def messages() -> None:
    """Every message, and what is none."""
    sums = Sums(np.array([[1.5, 0.25], [0.25, 2.0]]), np.array([0.5, -1.0]), 3)
    known: list[Message] = [
        Join(3, 17),
        Upload(3, 5, sums, 0.6931471805599453),
        Upload(0, 1, sums, -1e300),
        Receipt(3, 5),
        Download(3, 18, 5, sums),
        Download(3, 19, 5, sums, Slack(0.25, 0.5, 0.125, 1.0, 2.0, 4.0), own=False),
        Request(3, 12.5),
        Collect(3, 4),
        Threshold(3, 0.75),
        Recall(3, 4),
        Restate(3, 5, 4, sums, 0.5),
    ]
    upload = encode(known[1])
    nan = np.array([np.nan]).tobytes()
    refused = [
        ("cut short", upload[:-1]),
        ("too long", upload + b"\0"),
        ("another magic", b"FX" + upload[2:]),
        ("another format", upload[:2] + b"\x63" + upload[3:]),
        ("an unknown kind", upload[:3] + b"\x63" + upload[4:]),
        ("another dimension", upload[:4] + b"\x03" + upload[5:]),
        ("a number that is none", upload[:32] + nan + upload[40:]),
        ("statistics that are none", upload[:56] + nan + upload[64:]),
        ("nothing", b""),
    ]
    _write_messages("messages", "Messages as bytes, and bytes that are none.", [], known, refused)
    chain, uploads = 0, []
    for k in range(1, 4):
        data = encode(Upload(3, k, Sums(sums.V * k, sums.b * k, k), 0.5 * k))
        chain = extend(chain, data)
        uploads.append({"upload": data.hex(), "chain": chain.to_bytes(16, "little").hex()})
    _write("chain", {"kind": "chain", "what": "The chain after each upload.", "needs": [], "uploads": uploads})


def draws() -> None:
    """Philox, as policies use it."""
    entries = []
    for client, step in ((0, 0), (3, 0), (3, 1), (1, 2**33 + 5)):
        draw, calls = Draw(policy_key(7), client, step), list[dict[str, Any]]()
        calls += [{"index": 10, "is": draw.index(10)}, {"uniform": True, "is": draw.uniform()}]
        calls += [{"normal": 3, "is": draw.normal(3).tolist()}, {"index": 7, "is": draw.index(7)}]
        calls += [{"normal": 2, "is": draw.normal(2).tolist()}, {"uniform": True, "is": draw.uniform()}]
        entries.append({"client": client, "step": step, "calls": calls})
    what = "Numbers drawn at a client's step, in this order."
    _write("draws", {"kind": "draws", "what": what, "needs": [], "key": policy_key(7).tolist(), "draws": entries})


def encodings() -> None:
    """Named values and their contexts."""
    features = fb.Features(
        context={"age": {"number": [0, 100]}, "é": "boolean", "country": {"category": ["de", "fr"], "other": True}},
        action={"kind": {"category": ["book", "film"]}, "tags": {"hash": 7}, "Price": {"number": [-1.5, 3.25]}},
        interactions=[("age", "kind"), ("kind", "tags")],
    )
    situation = {"age": 31.7, "é": False, "country": "fr"}
    book, film = (
        {"kind": "book", "tags": "crime", "Price": 1},
        {"kind": "film", "tags": ["new", 7, "ünïcode"], "Price": 9},
    )
    asked: list[tuple[Any, Any]] = [
        ([book, film], situation),
        ([film | {"tags": -(2**53) + 1, "Price": None}], situation | {"age": -5, "é": True, "country": "at"}),
        ([book | {"tags": [], "kind": None}], dict.fromkeys(situation)),
        ([book | {"kind": "disc"}], situation),
        ([book | {"tags": 0.5}], situation),
        ([book | {"tags": True}], situation),
        ([book], situation | {"age": "old"}),
        ([book], situation | {"é": 1}),
        ([book], {"age": 1}),
        ([book], situation | {"sex": "f"}),
        ([], situation),
    ]
    entries: list[dict[str, Any]] = []
    for actions, context in asked:
        try:
            entries.append(
                {"actions": actions, "context": context, "is": features.transform(actions, context).tolist()}
            )
        except FedbanditError:
            entries.append({"actions": actions, "context": context, "refused": True})
    what = "Named values and the contexts that they become, bit by bit."
    _write(
        "features", {"kind": "features", "what": what, "needs": [], "features": features.as_json(), "contexts": entries}
    )


def _write(name: str, case: dict[str, Any]) -> None:
    (FOLDER / f"{name}.json").write_text(json.dumps({"name": name, **case}, indent=1) + "\n")
