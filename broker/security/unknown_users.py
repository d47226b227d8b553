"""Credentials for SCRAM users that do not exist: no password matches them.

A client must not learn from a salt or a number of iterations whether a user exists, so a name
without a user keeps its salt and iterations, also after a restart and on each broker of a cluster.
They are derived from the name under a secret that the metadata tree keeps, and look like those of
the users that exist:

    /barnabas/login_secret    32 random bytes, made once; no request reads them

A name gets the iterations and the form of salt of an existing user of its mechanism. Each form gets
names in proportion to its users (weighted rendezvous hashing), so a change of one user moves few
names.
"""

from __future__ import annotations

import hmac
import math
import re
import secrets
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from barnabas.metadata.cluster_state import ClusterState
from barnabas.metadata.tree import MetadataTree, NodeExists, NoNode
from barnabas.security.credentials import USERS, usable
from barnabas.security.scram import HASHES, ITERATIONS_MIN, Credential, text_salt

Configs = Mapping[str, Mapping[str, str]]

SECRET_PATH = "/barnabas/login_secret"
SECRET_BYTES = 32
_KAFKAS_SALT = re.compile(rb"[0-9a-z]{20,26}")


class Kind(NamedTuple):
    """What a client sees of a credential before it has proved anything."""

    iterations: int
    salt_bytes: int  # 0: a salt as Kafka's tools make them, which is text


KAFKAS_DEFAULT = Kind(ITERATIONS_MIN, 0)


def login_secret(tree: MetadataTree) -> bytes:
    """Returns the secret of the cluster, and makes it where there is none. Raises MetadataError."""
    try:
        return tree.get(SECRET_PATH)[0]
    except NoNode:
        tree.ensure_path(SECRET_PATH.rpartition("/")[0])
    try:
        tree.create(SECRET_PATH, secrets.token_bytes(SECRET_BYTES))
    except NodeExists:
        pass  # another broker was faster
    return tree.get(SECRET_PATH)[0]


class UnknownUsers:
    """The credentials of names that have none."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        # Configurations, and the kinds of credentials in them.
        self._counted: tuple[Configs, Mapping[str, Counter[Kind]]] = ({}, {})

    def credential(self, state: ClusterState, mechanism: str, user: str) -> Credential:
        name = f"{mechanism}\0{user}".encode("utf-8", "surrogatepass")
        kind = self._kind(state, mechanism, name)
        salt, stored, server = (
            hmac.digest(self._secret, purpose + name, HASHES[mechanism])
            for purpose in (b"s", b"k", b"v")
        )
        while len(salt) < kind.salt_bytes:
            salt += hmac.digest(self._secret, salt + name, HASHES[mechanism])
        salt = salt[: kind.salt_bytes] if kind.salt_bytes else text_salt(salt)
        return Credential(salt, stored, server, kind.iterations)

    def _kind(self, state: ClusterState, mechanism: str, name: bytes) -> Kind:
        counted = self._counted
        if state.configs is not counted[0]:
            counted = self._counted = (state.configs, _kinds(state))
        kinds = counted[1][mechanism]

        def score(kind: Kind) -> float:
            drawn = hmac.digest(self._secret, b"i%d,%d" % kind + name, "sha256")
            return kinds[kind] / -math.log((int.from_bytes(drawn[:6], "big") + 1) / (2**48 + 1))

        return max(sorted(kinds), key=score, default=KAFKAS_DEFAULT)


def _kinds(state: ClusterState) -> Mapping[str, Counter[Kind]]:
    """By mechanism: how many users have each kind of credential."""
    found: dict[str, Counter[Kind]] = {mechanism: Counter() for mechanism in HASHES}
    for path, config in state.configs.items():
        if not path.startswith(USERS + "/"):
            continue
        for mechanism, kinds in found.items():
            credential = usable(config.get(mechanism, ""))
            if credential is not None:
                is_text = _KAFKAS_SALT.fullmatch(credential.salt) is not None
                kinds[Kind(credential.iterations, 0 if is_text else len(credential.salt))] += 1
    return found
