"""A client's half of one secure sum. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from fedbandit.errors import FedbanditError, require
from fedbandit.machines.sums import shamir
from fedbandit.machines.sums.masks import (
    KEY,
    SIGNATURE,
    Identity,
    Pair,
    commitment,
    decrypt,
    encrypt,
    mask_pair,
    new_seed,
    own_mask,
    stream,
    verifies,
)
from fedbandit.machines.sums.messages import (
    FORMAT,
    RETURNING,
    Step,
    SumMessage,
    pack_entries,
    pack_members,
    unpack_entries,
    unpack_members,
)
from fedbandit.machines.sums.terms import Acquaintances, MaskTerms
from fedbandit.messages import Contribution
from fedbandit.privacy.sum_terms import taken_back

FRESH = 3 * KEY
"""Bytes that are new in each sum: keys for shares and for masks, and the commitment to the secret of the own mask."""

ANNOUNCED = FRESH + KEY + 2 * SIGNATURE
"""Bytes of Keys: those, the key for signatures, the signature, and the authority's certificate."""


class SumClient:
    """One client in the sum of one epoch. A session that has ended in an error sends nothing more.

    `contribution()` gives the number of interactions, the words that go into the sum, and the portions of their noise
    that may be taken back; it is called once, after a quorum of others is known, and whoever calls `receive` stores
    what it has changed before sending the answer.
    """

    def __init__(
        self,
        terms: MaskTerms,
        member: int,
        epoch: int,
        identity: Identity,
        acquaintances: Acquaintances,
        certificate: bytes,
        contribution: Callable[[], Contribution],
    ) -> None:
        self.terms, self.member, self.epoch = terms, member, epoch
        self._identity, self._acquaintances, self._certificate = identity, acquaintances, certificate
        self._contribution = contribution
        self._mask_seed, self._own_seed = new_seed(), new_seed()
        self._mask_pair, self._share_pair = mask_pair(self._mask_seed), Pair(Identity.new().private)
        self._fresh = self._share_pair.public + self._mask_pair.public + commitment(self._own_seed)
        self._keys: dict[int, bytes] = {}  # member → what it announced
        self._held: dict[int, bytes] = {}  # member → its shares for us
        self._survivors: list[int] | None = None
        self._excess = np.zeros((0, terms.words), dtype=np.uint64)
        self._awaited: Step | None = Step.ROSTER
        self.problem = ""
        """Why this client has left the sum, if it has."""

    @property
    def over(self) -> bool:
        """Whether it has nothing more to say."""
        return self._awaited is None

    def begin(self) -> SumMessage:
        """Step 1: announce fresh keys."""
        signature = self._identity.sign(signed_keys(self.terms, self.epoch, self.member, self._fresh))
        return self._say(Step.KEYS, self._fresh + self._identity.public + signature + self._certificate)

    def receive(self, message: SumMessage) -> list[SumMessage]:
        """The answer to a message of the coordinator; a repeated or late one has none."""
        if (message.member, message.epoch) != (self.member, self.epoch):
            raise FedbanditError(f"A step of epoch {message.epoch} for client {message.member} came to another one.")
        if message.step != self._awaited:
            return []
        self._awaited = None  # whatever goes wrong now, this session is over
        answer = {
            Step.ROSTER: self._share,
            Step.DELIVERY: self._mask,
            Step.SURVIVORS: self._agree,
            Step.AGREED: self._unmask,
        }[message.step]
        try:
            said = answer(message.body)
        except FedbanditError as error:
            self.problem = str(error)
            raise
        self._awaited = None if message.step == Step.AGREED else Step(message.step + 2)
        return [said]

    def _share(self, body: bytes) -> SumMessage:
        """Step 2: check who is there, and give everybody a share of both secrets."""
        keys = unpack_entries(body, ANNOUNCED)
        self._require_quorum(keys)
        publics = set[bytes]()
        for member, announced in keys.items():
            require(0 <= member < self.terms.members, "the number of a client", member, f"below {self.terms.members}")
            check_keys(self.terms, self.epoch, member, announced, self._acquaintances)
            publics |= {announced[i * KEY : (i + 1) * KEY] for i in range(4)}
        if keys[self.member][:FRESH] != self._fresh:
            raise FedbanditError(
                f"The roster of epoch {self.epoch} has other keys of client {self.member} than its own."
            )
        if len(publics) < 4 * len(keys):
            raise FedbanditError(f"Two clients of the roster of epoch {self.epoch} have a key in common.")
        self._acquaintances.pin({member: _signed(announced)[0] for member, announced in keys.items()})
        self._keys = keys
        at = [member + 1 for member in keys]
        mask, own = (shamir.split(s, self.terms.threshold, at) for s in (self._mask_seed, self._own_seed))
        sent = {
            v: encrypt(
                self._share_key(self.member, v), _pair_of_shares(mask[v + 1], own[v + 1]), self._bound(self.member, v)
            )
            for v in keys
            if v != self.member
        }
        self._held[self.member] = _pair_of_shares(mask[self.member + 1], own[self.member + 1])
        return self._say(Step.SHARES, pack_entries(sent))

    def _mask(self, body: bytes) -> SumMessage:
        """Step 3: the numbers, under the own mask and one for each other client."""
        delivered = unpack_entries(body)
        self._require_quorum({**delivered, self.member: b""})
        if not delivered.keys() <= self._keys.keys() - {self.member}:
            raise FedbanditError(f"Shares of epoch {self.epoch} came from clients that are not on its roster.")
        for v, cipher in delivered.items():
            self._held[v] = decrypt(self._share_key(v, self.member), cipher, self._bound(v, self.member))
        made = self._contribution()
        n, words, self._excess = made.n, made.words, made.excess
        require(words.size == self.terms.words, "the length of a contribution", words.size, str(self.terms.words))
        masked = words + own_mask(self._own_seed, words.size)
        for v in delivered:
            mask = stream(self._mask_key(v), words.size)
            masked = masked + mask if v > self.member else masked - mask
        return self._say(Step.MASKED, n.to_bytes(8, "little") + masked.astype("<u8").tobytes())

    def _agree(self, body: bytes) -> SumMessage:
        """Step 4: sign the list of those in the sum; this client signs one list an epoch."""
        survivors = unpack_members(body)
        self._require_quorum(dict.fromkeys(survivors, b""))
        if survivors != sorted(set(survivors)) or not set(survivors) <= self._held.keys():
            raise FedbanditError(f"The survivors of epoch {self.epoch} are not clients that sent shares.")
        self._survivors = survivors
        return self._say(Step.AGREE, self._identity.sign(self._list()))

    def _unmask(self, body: bytes) -> SumMessage:
        """Step 5: if enough have signed the same list, a share about each client, of one kind, and excess noise."""
        signatures = unpack_entries(body, SIGNATURE)
        assert self._survivors is not None
        in_sum = set(self._survivors)
        signed = [
            v for v in signatures if v in in_sum and verifies(_signed(self._keys[v])[0], signatures[v], self._list())
        ]
        require(
            len(signed) >= self.terms.threshold,
            f"the number of signatures under the list of epoch {self.epoch}",
            len(signed),
            f"{self.terms.threshold} or more",
        )
        shares = {v: held[shamir.SIZE :] if v in in_sum else held[: shamir.SIZE] for v, held in self._held.items()}
        # What the list makes superfluous: there is one list an epoch, so that nothing more is ever told.
        back = self._excess[: taken_back(self.terms.levels, len(in_sum))].sum(axis=0, dtype=np.uint64)
        return self._say(Step.UNMASK, back.astype("<u8").tobytes() + pack_entries(shares))

    def _require_quorum(self, who: Mapping[int, bytes]) -> None:
        if self.member not in who:
            raise FedbanditError(f"Client {self.member} is asked about a sum of epoch {self.epoch} without itself.")
        require(
            len(who) >= self.terms.quorum,
            f"the number of clients in the sum of epoch {self.epoch}",
            len(who),
            f"{self.terms.quorum} or more, as the terms say",
        )

    def _share_key(self, sender: int, recipient: int) -> bytes:
        """Of what one client encrypts for another."""
        other = recipient if sender == self.member else sender
        return self._share_pair.agree(self._keys[other][:KEY], b"share" + self._bound(sender, recipient))

    def _mask_key(self, other: int) -> bytes:
        return self._mask_pair.agree(self._keys[other][KEY : 2 * KEY], mask_purpose(self.terms, self.epoch))

    def _bound(self, sender: int, recipient: int) -> bytes:
        return self.terms.bound(self.epoch, pack_members([sender, recipient]))

    def _list(self) -> bytes:
        assert self._survivors is not None
        return self.terms.bound(self.epoch, b"survivors" + pack_members(self._survivors))

    def _say(self, step: Step, body: bytes) -> SumMessage:
        return SumMessage(self.member, self.epoch, step, body, RETURNING if step == Step.UNMASK else FORMAT)


def signed_keys(terms: MaskTerms, epoch: int, member: int, keys: bytes) -> bytes:
    """What a client signs when it announces its keys."""
    return terms.bound(epoch, b"keys" + member.to_bytes(8, "little") + keys)


def check_keys(terms: MaskTerms, epoch: int, member: int, announced: bytes, known: Acquaintances) -> None:
    """Refuse keys that this member has not signed for this epoch, or that are signed by somebody else."""
    public, signature, certificate = _signed(announced)
    known.check(member, public, certificate)
    if not verifies(public, signature, signed_keys(terms, epoch, member, announced[:FRESH])):
        raise FedbanditError(f"The keys of client {member} in epoch {epoch} are not signed by it.")


def mask_purpose(terms: MaskTerms, epoch: int) -> bytes:
    """What the keys behind masks that cancel are bound to."""
    return b"mask" + terms.bound(epoch, b"")


def _signed(announced: bytes) -> tuple[bytes, bytes, bytes]:
    """The signing key, the signature and the certificate of what was announced."""
    rest = announced[FRESH:]
    return rest[:KEY], rest[KEY : KEY + SIGNATURE], rest[KEY + SIGNATURE :]


def _pair_of_shares(mask: int, own: int) -> bytes:
    return mask.to_bytes(shamir.SIZE, "little") + own.to_bytes(shamir.SIZE, "little")
