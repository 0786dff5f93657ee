"""A recommender behind FastAPI, with several workers: each embeds a client of one federation.

    fedbandit serve --config federation.toml      # a federation "shops" with dim = 3
    WORKER=0 CHOICE_KEY=sixteen-bytes-or-more URL=http://127.0.0.1:8765 uvicorn examples.recommender:app --port 8001
    WORKER=1 CHOICE_KEY=sixteen-bytes-or-more URL=http://127.0.0.1:8765 uvicorn examples.recommender:app --port 8002

A choice travels to the browser as a signed token, so that whichever worker gets the click can learn from it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException

import fedbandit as fb

ARTICLES = {"bread": [1.0, 0.0, 0.3], "tea": [0.0, 1.0, 0.1], "soap": [0.2, 0.2, 0.9]}


@asynccontextmanager
async def with_client(app: FastAPI) -> AsyncIterator[None]:
    """A client in each worker, opened after the worker was forked; its name is the same after a restart."""
    worker = os.environ.get("WORKER", "0")
    folder = os.environ.get("STATE", ".")
    with fb.Client(
        os.environ["URL"],
        federation="shops",
        name=f"worker-{worker}",  # off this machine: token=os.environ["TOKEN"], ca="ca.pem"
        state=f"{folder}/worker-{worker}.db",
        choice_key=os.environ["CHOICE_KEY"],  # the same for all workers
        longest=2.0,  # features are at most this long
    ) as client:
        app.state.client = client
        yield


app = FastAPI(lifespan=with_client)


@app.get("/recommend")
def recommend(age: float = 0.0) -> dict[str, str]:
    """One of the articles for a visitor, and the token that brings the click home."""
    client: fb.Client = app.state.client
    names = list(ARTICLES)
    arm = client.select([[x * (1.0 + 0.1 * age) for x in ARTICLES[name]] for name in names])
    return {"article": names[int(arm)], "choice": client.export(arm)}


@app.post("/click")
def click(choice: str, reward: float = 1.0) -> dict[str, object]:
    """The reward, at whichever worker."""
    client: fb.Client = app.state.client
    try:
        client.observe(reward, choice)
    except fb.FedbanditError as error:
        raise HTTPException(422, str(error)) from error
    return client.status()
