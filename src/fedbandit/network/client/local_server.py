"""The local server that a service embeds: it serves many users, clusters them, and talks in the background.

```python
with fb.LocalServer("https://host:8765", federation="regions", token=token, state="north.db") as server:
    arm = server.select(user, arms)    # an index of `arms`; never waits for the network
    server.observe(reward, arm)        # or arm.id: later, out of order, after a restart
```

FCLUB's local servers (`fclub`, `fclub_dc`, `homo_dc`) exchange sums over clusters of their users; those of
`cdp_fclub_dc` what each user has released, with noise. `club` and `sclub` exchange nothing: there is no coordinator to
ask, so that all is said here,

```python
agreement = fb.Agreement("club", {}, fb.World(n_clients=200, dim=10, horizon=100_000))
with fb.LocalServer(agreement=agreement, state="north.db") as server: ...
```
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from numpy.typing import ArrayLike

from fedbandit.errors import FedbanditError
from fedbandit.machines.cluster_server import ClusterServer
from fedbandit.machines.local_server import LocalServer as ServingMachine
from fedbandit.machines.server_node import ServerNode
from fedbandit.network.client.address import Address
from fedbandit.network.client.choices import Arm, id_of, number_of
from fedbandit.network.client.durable_server import KIND, DurableServer
from fedbandit.network.client.features import OutOfRange, Scaling, as_agreed
from fedbandit.network.client.journal import has_nothing, stored_agreement
from fedbandit.network.client.member import Member
from fedbandit.network.client.options import lasting_name, noise_source
from fedbandit.network.invitation import Agreement
from fedbandit.network.stores import StoreError, open_store
from fedbandit.privacy.guarantee import Guarantee, Require


class LocalServer(Member):
    """A local server of a federation, on this machine: a node with many users.

    Users have the numbers that the federation gives them; `users` says which are this server's. `select` and `observe`
    work whether or not the coordinator can be reached; only the very first start needs it, to learn the agreement. With
    `state`, a file, everything survives a crash; without it, everything is in memory. Raw statistics of single users
    stay here, unless each user is a member of its own (`cdp_fclub_dc`), whose releases are noised.

    `url` may be several, of coordinators that share a store. Without `url`, `agreement` says what is served, by a
    system that has no coordinator: server `number` of it.

    `intercept`, `longest`, `out_of_range` and `require` are those of `fb.Client`. Methods may be called from any
    thread.
    """

    called: ClassVar[str] = "local server"

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        *,
        federation: str | None = None,
        token: str | None = None,
        state: str | os.PathLike[str] | None = None,
        name: str | None = None,
        ca: str | None = None,
        agreement: Agreement | None = None,
        number: int = 0,
        intercept: bool = False,
        longest: float | None = None,
        out_of_range: OutOfRange = "refuse",
        require: Require | None = None,
        timeout: float = 10.0,
    ) -> None:
        if (url is None) != (agreement is not None) or (url is None) != (federation is None):
            raise FedbanditError("A local server needs url and federation, or agreement if it has no coordinator.")
        if url is not None and token is None and name is None:
            name = lasting_name(state)
        address = None if url is None or federation is None else Address(url, federation, token, name, ca)
        store = open_store(state)
        invited = False
        try:
            kept = stored_agreement(store, KIND)
            agreed, member = _agreed(kept, store.where, address, agreement, number, timeout)
            invited = kept is None
            intercept, longest = as_agreed(agreed.schema, intercept, longest)
            world, system = agreed.world, agreed.build()
            self._scaling = Scaling(
                world.dim, world.bound, intercept=intercept, longest=longest, out_of_range=out_of_range
            )
            source = noise_source(system, report=False, lasts=state is not None)
            entropy = lambda: secrets.randbits(63)  # noqa: E731
            if require is not None or system.guarantee.private:  # first: a file is of a server that takes part
                claim = _claim(ServerNode(member, system, world, agreed.seed, source=source))
                (require or Require()).check(claim, world)
            self._durable = DurableServer(store, agreed, member, entropy, source, federation or "")
        except BaseException:
            unbound = invited and (state is None or has_nothing(store, KIND))
            store.close()
            if unbound and address is not None:
                address.decline(timeout)
            raise
        super().__init__(store, self._durable, address)
        self.start()

    @property
    def users(self) -> list[int]:
        """The numbers of this server's users."""
        return list(self._durable.machine.server.users)

    def select(self, user: int, arms: ArrayLike) -> Arm:
        """Choose one of the arms for a user, given by their features as a (K, d) array, K as you like."""
        self._check_open()
        self._durable.checked_user(user)
        choice = self._durable.select(user, self._scaling.transform(arms))
        return Arm(choice.arm, id_of(choice.number))

    def observe(self, reward: float, choice: Arm | str) -> None:
        """Learn the reward of a choice, whenever it comes: of an arm, or of its id.

        It is on disk when this returns, unless the disk is full: then it is kept in memory, `problem` says so, and
        everything is written as soon as there is room again.
        """
        self._check_open()
        number = number_of(choice)
        with self._locked():
            before = self._durable.machine.sequence
            try:
                self._durable.observe(number, reward)
            except StoreError as error:
                self._trouble(error)
            to_send = self._durable.machine.sequence > before or self._durable.asking is not None
        if to_send:
            self.wake()

    def forget(self, choice: Arm | str) -> None:
        """The reward of this choice will never come."""
        self._check_open()
        self._durable.forget(number_of(choice))

    # What is going on

    @property
    def guarantee(self) -> Guarantee:
        """What privacy holds for what leaves this server, and how its noise is drawn."""
        return _claim(self._durable.machine)

    @property
    def clusters(self) -> list[list[int]] | None:
        """The local clusters of its users now; None if each has a model of its own."""
        with self._durable.lock:
            server = self._durable.machine.server
            if isinstance(server, ClusterServer):
                found: dict[int, list[int]] = {}
                for user, home in server.homes.items():
                    found.setdefault(home, []).append(user)
                return sorted(found.values())
            return server.serving.groups() if isinstance(server, ServingMachine) else None

    def status(self) -> dict[str, Any]:
        """Plain numbers: users, observed, local clusters, the phase, what waits to be sent."""
        clusters = self.clusters
        with self._durable.lock:
            node = self._durable.machine
            return {
                "member": node.member,
                "users": len(node.users),
                "observed": node.server.observed,
                "clusters": len(node.users) if clusters is None else len(clusters),
                "phase": node.phase,
                "uploads": node.sequence,
                "outbox": len(node.outbox),
                "connected": self.connected,
                "problem": self.problem,
            }


def _agreed(
    kept: tuple[Agreement, int] | None,
    where: str,
    address: Address | None,
    agreement: Agreement | None,
    number: int,
    timeout: float,
) -> tuple[Agreement, int]:
    """What was agreed on, and the server's number: as the state has it, as the coordinator says, or as given."""
    if agreement is None:
        assert address is not None
        agreed, member = kept or address.invitation(timeout)
        if agreed.servers is None:
            if kept is None:
                address.decline(timeout)
            raise FedbanditError("The members of this federation are clients: use fb.Client.")
        return agreed, member
    if agreement.servers is not None:
        raise FedbanditError(f"{agreement.system} has a coordinator; give url and federation.")
    if kept is not None and kept[1] != number:
        raise FedbanditError(f"The state in {where} is that of local server {kept[1]}, not {number}.")
    return agreement, number


def _claim(node: ServerNode) -> Guarantee:
    """What holds for what leaves a node, in the words of a local server."""
    claim = node.guarantee
    return replace(claim, against=claim.against.replace("leaves the client", "leaves this local server"))
