"""The responses to a SCRAM login of an unknown user look like those of a known user."""

import base64
import re
import threading
from collections import Counter

import pytest
from compat.support import Wire
from security.login_broker import HASHES, NUMBERS, login_broker
from security.users import alter, upsertion

from barnabas.metadata.cluster_state import ClusterState
from barnabas.metadata.embedded import EmbeddedTree
from barnabas.security import credentials
from barnabas.security.scram import Credential
from barnabas.security.unknown_users import SECRET_PATH, UnknownUsers, login_secret

MECHANISM = "SCRAM-SHA-256"
NAMES = ("nobody", "somebody", "alice")


def shown(login, user, mechanism=MECHANISM):
    """(salt, iterations) of the broker's first token."""
    with login.connect() as c:
        assert c.handshake(mechanism) == 0
        fields = c.token(f"n,,n={user},r=abc".encode())[2].split(b",")
        return base64.b64decode(fields[1][2:]), int(fields[2][2:])


def state_of(*users):
    """A cluster state whose users have these (salt, iterations)."""
    return ClusterState(
        configs={
            f"users/u{number}": {MECHANISM: credentials.encode(Credential(salt, b"k", b"v", count))}
            for number, (salt, count) in enumerate(users)
        }
    )


@pytest.mark.parametrize("mechanism", HASHES)
def test_a_name_shows_the_same_salt_and_iterations_after_a_restart(tmp_path, mechanism):
    """Before, the salts changed, so that two logins with a name showed whether it is a user."""
    seen = []
    for start in range(2):
        with login_broker(tmp_path) as login, Wire(login.plain) as wire:
            if not start:
                row = upsertion("bob", "p", NUMBERS[mechanism], iterations=8192)
                assert alter(wire, upsertions=[row]) == {"bob": (0, None)}
            seen.append([shown(login, name, mechanism) for name in (*NAMES, "bob")])
    assert seen[0] == seen[1]
    assert len({salt for salt, _ in seen[0]}) == 4
    # Before, each name without a user had 4096, whatever the users had.
    assert {iterations for _, iterations in seen[0]} == {8192}


def test_no_request_shows_the_secret(tmp_path):
    with login_broker(tmp_path) as login:
        tree = login.broker.node.bound.before.before.tree
        secret, _ = tree.get(SECRET_PATH)
        assert len(secret) == 32
        state = login.broker.node.bound.before.before.reader.state
        assert secret.hex() not in repr(state) and repr(secret) not in repr(state)


def test_brokers_that_make_the_secret_at_once_get_the_same(tmp_path):
    tree = EmbeddedTree(tmp_path, clock_ms=lambda: 1)
    together, found = threading.Barrier(8), []

    def make():
        together.wait(10)
        found.append(login_secret(tree))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    tree.close()
    assert len(found) == 8 and len(set(found)) == 1


def test_names_look_like_the_users_that_there_are():
    """Iterations and lengths of salts have the same distribution as those of the users."""
    kafka, librdkafka = b"1abcdefghijklmnopqrstuvwxyz"[:25], bytes(range(64))
    state = state_of(*[(kafka, 4096)] * 6, *[(librdkafka, 10000)] * 3, (b"12345678", 16384))
    unknown_users = UnknownUsers(bytes(32))
    found = Counter()
    for number in range(2000):
        made = unknown_users.credential(state, MECHANISM, f"n{number}")
        is_text = re.fullmatch(rb"[0-9a-z]{20,26}", made.salt) is not None
        found[made.iterations, is_text or len(made.salt)] += 1
    assert set(found) == {(4096, True), (10000, 64), (16384, 8)}
    assert 1100 < found[4096, True] < 1300
    assert 500 < found[10000, 64] < 700


def test_a_change_of_one_user_moves_few_names():
    """A name whose iterations change when another user is added cannot be a user."""
    before = [(bytes(64), 4096)] * 50 + [(bytes(64), 8192)] * 50
    unknown_users = UnknownUsers(bytes(32))
    names = [f"n{number}" for number in range(1000)]

    def iterations(state):
        return [unknown_users.credential(state, MECHANISM, name).iterations for name in names]

    first, then = iterations(state_of(*before)), iterations(state_of(*before, (bytes(64), 8192)))
    moved = sum(a != b for a, b in zip(first, then, strict=True))
    assert moved <= 20


def test_salts_have_the_lengths_of_kafkas_where_there_are_no_users():
    """130 random bits in base 36: 26 digits for 40 of 100, else 25 or, seldom, fewer."""
    unknown_users = UnknownUsers(bytes(32))
    salts = [unknown_users.credential(ClusterState(), MECHANISM, f"n{n}").salt for n in range(1000)]
    lengths = Counter(map(len, salts))
    assert 330 < lengths[26] < 480 and 480 < lengths[25] < 650
    assert len(set(salts)) == 1000
