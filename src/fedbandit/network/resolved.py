"""What a client in any language needs to know of a federation: resolved numbers, no names and defaults of presets.

It is the `client` of an invitation; docs/protocol.md says what each name means, and with which formulas. A Python
client builds its machine of the agreement, and refuses an invitation whose numbers differ from those it would use
itself: it is of another version then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from fedbandit.errors import FedbanditError, shown
from fedbandit.forgetting import Fading, Forgetting
from fedbandit.machines.client import ClientMachine
from fedbandit.model import RidgeModel
from fedbandit.network.invitation import Agreement
from fedbandit.network.jsonable import to_json
from fedbandit.parts import name_of
from fedbandit.policies import Policy
from fedbandit.privacy.privacy import Releases
from fedbandit.privacy.sum_stream import SumStream
from fedbandit.protocols.protocol import says_what_it_knows
from fedbandit.sharing import LocalModel, Share, prior_share
from fedbandit.streams import policy_key
from fedbandit.structures.action_model import ActionModel
from fedbandit.structures.time_blocks import LEVEL, LEVELS, AdaptiveWindow, SlidingWindow
from fedbandit.structures.two_part_model import TwoPartModel
from fedbandit.types import Ints

VERSIONS = (1,)
"""Versions of the protocol that are spoken."""


def client_terms(agreement: Agreement, member: int) -> dict[str, Any]:
    """All that member has to know before it can act.

    >>> from fedbandit.world import World
    >>> terms = client_terms(Agreement("async-linucb", {"gamma_upload": 2.0}, World(3, 2, 100)), 0)
    >>> terms["capabilities"], terms["trigger"]
    (['growth', 'ridge', 'ucb', 'upload'], {'kind': 'growth', 'threshold': 0.6931471805599453})
    """
    system, world, servers = agreement.build(), agreement.world, agreement.servers
    if servers is not None:
        return _server_terms(agreement, np.flatnonzero(servers == member))
    machine = ClientMachine(member, system, world, agreement.seed)
    rule, model = system.privacy.reward_rule, _model(machine.model)
    if agreement.action_names:
        model["names"] = list(agreement.action_names)
    policy, explorer = (
        _policy(system.policy.told(system.as_seen(agreement.world))),
        _policy(system.explorer.told(agreement.world)),
    )
    trigger = {"kind": name_of(type(machine.trigger)), "threshold": machine.threshold, **_fields(machine.trigger)}
    says = system.protocol.says
    privacy = _privacy(system.privacy.site, system.privacy.perturbs, rule.scale, machine.stream)
    known = "nothing"
    if says_what_it_knows(system.protocol):
        known = "log-count" if system.counts_only else "log-det"
    forgetting = _forgetting(machine.forgetting, agreement.period)
    needed = {policy["kind"], trigger["kind"], model["kind"], says, privacy["kind"]} - {"none"}
    needed |= {"forgetting"} if forgetting else set()
    if machine.exploring:
        needed |= {"exploring", explorer["kind"]}
    if system.protocol.one_by_one:
        needed.add("one-by-one")
    if system.privacy.perturbs == "statistics":
        needed.add("others")  # downloads are the others' noisy sums, to be mixed with one's own
    if isinstance(machine.model, TwoPartModel) and machine.model.projected:
        needed.add("projected")  # rewards are split by generalised inverses
    prior = prior_share(system.sharing(world), member)
    plain: dict[str, Any] = to_json(
        {
            "capabilities": sorted(needed),
            "contexts": {"length": world.dim, "norm": machine.bound},
            "features": None if agreement.schema is None else agreement.schema.as_json(),
            "rewards": {
                "bound": agreement.reward_bound,
                "low": rule.low,
                "high": rule.high,
                "outside": "clip" if rule.clip else "refuse",
            },
            "model": model,
            "policy": policy,
            "exploring": machine.exploring,
            "explorer": explorer,
            "draws": {"key": policy_key(agreement.seed).tolist(), "client": member * system.protocol.period},
            "trigger": trigger,
            "says": says,
            "one_by_one": system.protocol.one_by_one,
            "known": known,
            "privacy": privacy,
            "prior": None if prior is None else _share(prior),
            **({"forgetting": forgetting} if forgetting else {}),
        }
    )
    return plain


def _server_terms(agreement: Agreement, users: Ints) -> dict[str, Any]:
    """All that a local server is told beside the agreement: there is one in Python only."""
    plain: dict[str, Any] = to_json(
        {
            "capabilities": ["local-server"],
            "contexts": {"length": agreement.world.dim, "norm": agreement.world.bound},
            "users": users,
        }
    )
    return plain


def invitation(
    agreement: Agreement, federation: str, member: int, name: str, migrated: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What a client is sent that asks for an invitation, as JSON; `migrated` is what the federation remembers."""
    steps = (migrated or {}).get("steps")
    return {
        "versions": list(VERSIONS),
        "federation": federation,
        "member": member,
        "name": name,
        "digest": agreement.digest.hex(),
        "agreement": agreement.as_json(),
        "client": client_terms(agreement, member),
        **({"migrations": steps} if steps else {}),
    }


def terms(agreement: Agreement, federation: str) -> dict[str, Any]:
    """What is told without a place, as JSON."""
    said = {"versions": list(VERSIONS), "federation": federation}
    return {**said, "digest": agreement.digest.hex(), "agreement": agreement.as_json()}


def accept_terms(answer: Mapping[str, Any]) -> Agreement:
    """The agreement of an invitation or of `terms`, if this version speaks the coordinator's."""
    versions = answer["versions"]
    if not set(VERSIONS).intersection(versions):
        raise FedbanditError(
            f"The coordinator speaks version {' and '.join(map(str, versions))} of the protocol, this client version "
            f"{' and '.join(map(str, VERSIONS))}."
        )
    return Agreement.of_json(answer["agreement"])


def accept(answer: Mapping[str, Any]) -> tuple[Agreement, int]:
    """The agreement and the member number of an invitation, if this version takes part in the same way as others."""
    agreement, member = accept_terms(answer), int(answer["member"])
    ours, theirs = client_terms(agreement, member), answer["client"]
    unknown = sorted(set(theirs["capabilities"]).difference(ours["capabilities"]))
    if unknown:
        raise FedbanditError(f"The federation needs clients that can do {', '.join(unknown)}, which this one cannot.")
    require_same(ours, theirs)
    return agreement, member


def require_same(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    """Refuse an invitation whose numbers are not those that this version resolves, to rounding.

    >>> require_same({"policy": {"alpha": 1.0}}, {"policy": {"alpha": 2.0}})
    Traceback (most recent call last):
    fedbandit.errors.FedbanditError: The invitation says policy.alpha = 2.0, this version of fedbandit has 1.0: they ...
    """
    where = _difference(ours, theirs, "")
    if where is not None:
        name, one, other = where
        raise FedbanditError(
            f"The invitation says {name} = {shown(other)}, this version of fedbandit has {shown(one)}: they differ in "
            "what the federation's terms mean; install the coordinator's version."
        )


def _difference(ours: Any, theirs: Any, name: str) -> tuple[str, Any, Any] | None:
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        for key in sorted({*ours, *theirs}):
            found = _difference(ours.get(key), theirs.get(key), f"{name}.{key}".lstrip("."))
            if found is not None:
                return found
        return None
    if isinstance(ours, float) and isinstance(theirs, int | float):
        same = abs(ours - theirs) <= 1e-12 * max(abs(ours), abs(theirs))
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        same = all(_difference(one, other, name) is None for one, other in zip(ours, theirs, strict=True))
    else:
        same = ours == theirs
    return None if same else (name, ours, theirs)


def _policy(policy: Policy) -> dict[str, Any]:
    return {"kind": name_of(type(policy)), **_fields(policy)}


def _fields(part: object) -> dict[str, Any]:
    """The parameters of a part, but for thresholds, of which a member is told its own."""
    if not is_dataclass(part):
        return {}
    return {field.name: getattr(part, field.name) for field in fields(part) if field.name != "thresholds"}


def _model(model: LocalModel) -> dict[str, Any]:
    match model:
        case RidgeModel():
            kind = "ridge" if model.fresh else "released"
            return {"kind": kind, "length": model.dim, "ridge": model.ridge, "partial_noise": model.partial_noise}
        case ActionModel():
            f, A = model.form
            return {"kind": "per-action", "length": f, "actions": A, "ridge": model.ridge, "partial_noise": 0.0}
        case TwoPartModel():
            return {
                "kind": "two-part",
                "length": model.cut.shared,
                "ridge": model.ridge,
                "partial_noise": model.shared.partial_noise,
                "first": model.cut.first,
                "own": model.cut.own,
                "size": model.size,
                "starting": model.starting,
            }
    return {"kind": name_of(type(model))}


def _forgetting(forgetting: Forgetting, period: float | None) -> dict[str, Any]:
    match forgetting:
        case Fading():
            return {"kind": "fading", "period": period, "discount": forgetting.discount}
        case SlidingWindow():
            return {"kind": "sliding", "period": period, "epoch": forgetting.length, "slots": forgetting.slots}
        case AdaptiveWindow():
            sizes = {"epoch": forgetting.length, "slots": forgetting.slots, "levels": LEVELS}
            return {"kind": "adaptive", "period": period, **sizes, "level": LEVEL, "noise": forgetting.sigma}
    return {}


def _share(share: Share) -> dict[str, Any]:
    V, b, n = share.sums
    return {"n": n, "b": b, "V": V[np.tril_indices(len(b))], "slack": list(share.slack)}


def _privacy(site: str, perturbs: str, laplace: float, stream: Releases | None) -> dict[str, Any]:
    """What a client noises: nothing, each reward, or what it releases."""
    if stream is None or site != "client":
        return {"kind": "noisy-rewards", "scale": laplace} if laplace > 0 else {"kind": "none"}
    mechanism = stream.mechanism
    return {
        "kind": "secure-sums" if isinstance(stream, SumStream) else f"private-{perturbs.replace(' ', '-')}",
        "noise": mechanism.noise,
        "scale": mechanism.scale,
        "reward_weight": mechanism.reward_weight,
        "releases": mechanism.n_max,
    }
