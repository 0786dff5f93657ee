"""The gateway's HTTP interface, described as OpenAPI 3.1."""

from __future__ import annotations

from typing import Any

from fedbandit._version import __version__
from fedbandit.features import Boolean, Category, Column, Features, Number
from fedbandit.gateway.gateway import Gateway
from fedbandit.gateway.requests import LEAST_PROPENSITY, MOST_ACTIONS, MOST_ID


def openapi(gateway: Gateway) -> dict[str, Any]:
    """The document: what this gateway takes, with the columns and the mode that it has."""
    shadow = gateway.mode == "shadow"
    number, text = {"type": "number"}, {"type": "string", "minLength": 1, "maxLength": MOST_ID}
    own = {
        "choice": {**text, "description": "The id of the action that you take."},
        "propensity": {
            "type": "number",
            "minimum": LEAST_PROPENSITY,
            "maximum": 1,
            "description": "The probability with which you took it.",
        },
    }
    features, context = _features(gateway.features, gateway.client.given)
    bare = gateway.features is not None and not gateway.features.action
    action = _object({"id": text, "features": features}, ["id"] if bare else ["id", "features"])
    estimate = {"anyOf": [_object(dict.fromkeys(("value", "low", "high"), number)), {"type": "null"}]}
    known = {"anyOf": [_object({**dict.fromkeys(("value", "low", "high"), number), "effective_events": number}),
                       {"type": "null"}]}  # fmt: skip
    maybe = {"type": ["number", "null"]}
    shadow_report = {
        "would_have_earned": known,
        "why_not": {"type": ["string", "null"]},
        "agreement": maybe,
        "earned_where_agreed": estimate,
    }
    schemas = {
        "Rank": _object(
            {
                "event_id": {**text, "description": "Yours; without one you are told one."},
                "actions": {"type": "array", "minItems": 1, "maxItems": MOST_ACTIONS, "items": action},
                "context": context,
                **(own if shadow else {}),
            },
            ["actions", "choice"] if shadow else ["actions"],
        ),
        "Ranking": _object(
            {
                "event_id": text,
                "chosen": {**text, "description": "The action to take."},
                "propensity": {**maybe, "description": "The probability with which it was chosen."},
                "ranking": {
                    "type": "array",
                    "items": _object({"id": text, "propensity": number, "mean": number}),
                    "description": "The bandit's choice first, the others by the reward that is expected of them.",
                },
                "mode": {"enum": ["online", "shadow"]},
                "deadline": {**maybe, "description": "Until when a reward is taken, in seconds since 1970."},
            }
        ),
        "Reward": _object({"event_id": text, "reward": number}),
        "Rewarded": _object({"event_id": text, "reward": number, "repeated": {"type": "boolean"}}),
        "Report": _object(
            {"mode": {"enum": ["online", "shadow"]}, "events": {"type": "integer"}, "earned": estimate,
             **(shadow_report if shadow else {})}
        ),
        "Refusal": _object({"error": {"type": "string"}, "kind": {"type": "string"}}),
    }  # fmt: skip
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "fedbandit gateway",
            "version": __version__,
            "description": "Ranks actions, learns from rewards, and is a member of a federation.",
        },
        "paths": {
            "/rank": _post("Rank the actions of an event", "Rank", "Ranking", {400: "Bad input", 409: _TWICE}),
            "/reward": _post(
                "Learn the reward of an event",
                "Reward",
                "Rewarded",
                {400: "Bad input", 404: "No such event", 409: "It has another reward", 410: "Its deadline is over"},
            ),
            "/report": _get("What was earned, and in shadow mode what would have been", "Report"),
            "/healthz": _get("Whether the gateway is well"),
            "/metrics": _get("Numbers for Prometheus", media="text/plain"),
            "/openapi.json": _get("This document"),
        },
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


_TWICE = "Another request had this event_id"


def _object(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    needed = list(properties) if required is None else required
    return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}


def _answers(name: str | None, media: str, refusals: dict[int, str]) -> dict[str, Any]:
    schema = {} if name is None else {"$ref": f"#/components/schemas/{name}"}
    refusal = {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}
    common = {401: "No valid token", 403: "Not from there", 503: "It cannot be kept now"}
    codes = sorted({**common, **refusals}.items())
    return {
        "200": {"description": "Done", "content": {media: {"schema": schema}}},
        **{str(code): {"description": what, "content": refusal} for code, what in codes},
    }


def _post(summary: str, asked: str, answered: str, refusals: dict[int, str]) -> dict[str, Any]:
    body = {"application/json": {"schema": {"$ref": f"#/components/schemas/{asked}"}}}
    answers = _answers(answered, "application/json", {**refusals, 413: "The body is too long"})
    return {"post": {"summary": summary, "requestBody": {"required": True, "content": body}, "responses": answers}}


def _get(summary: str, answered: str | None = None, media: str = "application/json") -> dict[str, Any]:
    return {"get": {"summary": summary, "responses": _answers(answered, media, {})}}


def _features(features: Features | None, given: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Schemas of an action's features and of the context."""
    if features is None:
        vector = {"type": "array", "items": {"type": "number"}, "maxItems": given}
        return vector, {"anyOf": [vector, {"type": "null"}]}
    return (
        _object({name: _column(column) for name, column in features.action.items()}),
        _object({name: _column(column) for name, column in features.context.items()}),
    )


def _column(column: Column) -> dict[str, Any]:
    match column:
        case Number():
            return {"type": ["number", "null"]}
        case Boolean():
            return {"type": ["boolean", "null"]}
        case Category():
            return {"type": ["string", "null"]} if column.other else {"enum": [*column.values, None]}
    one = {"type": ["string", "integer"]}
    return {"anyOf": [one, {"type": "array", "items": one}, {"type": "null"}]}
