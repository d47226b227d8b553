"""SCRAM credentials in the metadata tree, in Kafka's form, for both stores.

    /config/users/NAME   {"version": 1, "config": {"SCRAM-SHA-256": CREDENTIAL, ...}}
    CREDENTIAL           salt=BASE64,stored_key=BASE64,server_key=BASE64,iterations=NUMBER

NAME is sanitized as Kafka does (znodes.py). A credential that cannot be read, or whose iterations
are outside 4096..16384, counts as none: the login fails. Next: logins.py.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping

from barnabas.metadata import znodes
from barnabas.metadata.cluster_state import ClusterState
from barnabas.metadata.znode_json import ZnodeDataError
from barnabas.security.scram import HASHES, ITERATIONS_MAX, ITERATIONS_MIN, Credential

log = logging.getLogger("barnabas.security")

USERS = "users"
_KEYS = ("salt", "stored_key", "server_key")


def node_name(user: str) -> str:
    """The sanitized name; the two names that no node can have get their dots escaped too."""
    return user.replace(".", "%2E") if user in (".", "..") else znodes.sanitized(user)


def encode(credential: Credential) -> str:
    rows = [f"{key}={base64.b64encode(getattr(credential, key)).decode()}" for key in _KEYS]
    return ",".join([*rows, f"iterations={credential.iterations}"])


def decode(text: str) -> Credential:
    """Raises ValueError."""
    found = dict(part.split("=", 1) for part in text.split(","))
    if set(found) != {*_KEYS, "iterations"}:
        raise ValueError("not salt, stored_key, server_key and iterations")
    salt, stored, server = (base64.b64decode(found[key], validate=True) for key in _KEYS)
    return Credential(salt, stored, server, int(found["iterations"]))


def text_of(state: ClusterState, user: str, mechanism: str) -> str | None:
    """The stored text of a credential."""
    return state.config(USERS, node_name(user)).get(mechanism)


def usable(text: str) -> Credential | None:
    try:
        credential = decode(text)
    except ValueError:
        return None
    is_usable = ITERATIONS_MIN <= credential.iterations <= ITERATIONS_MAX
    return credential if is_usable else None


def iterations_of(state: ClusterState, user: str) -> Mapping[str, int]:
    """The iterations of a user's usable credentials, by mechanism."""
    found = {}
    for mechanism in HASHES:
        text = text_of(state, user, mechanism)
        credential = usable(text) if text is not None else None
        if credential is not None:
            found[mechanism] = credential.iterations
        elif text is not None:  # it is secret: the line names it alone
            log.warning("the %s credential of user %.80r cannot be read", mechanism, user)
    return found


def users(state: ClusterState) -> list[str]:
    """The names that have a configuration of their own, credentials or not."""
    prefix, found = f"{USERS}/", []
    for path in state.configs:
        name = path.removeprefix(prefix)
        if name != path and "/" not in name and name != znodes.DEFAULT_ENTITY:
            try:
                found.append(znodes.unsanitized(name))
            except ZnodeDataError as error:
                log.warning("/config/%s is ignored: %s", path, error)
    return sorted(found)
