"""Changes of users' credentials while other brokers change them, too."""

import threading

import pytest

from barnabas.controller.entity_nodes import ATTEMPTS_MAX
from barnabas.controller.user_credentials import UserCredentials
from barnabas.errors import ResourceNotFound
from barnabas.metadata import znodes
from barnabas.metadata.cluster_state import ClusterStateReader
from barnabas.metadata.embedded import EmbeddedTree
from barnabas.metadata.tree import StoreUnavailable
from barnabas.security import credentials
from barnabas.security.scram import HASHES, Credential

CREDENTIAL = Credential(b"salt", b"stored", b"server", 4096)
BOB = "/config/users/bob"


class Busy:
    """A metadata tree in which `other` makes a change before each of the first `count` changes."""

    def __init__(self, tree, other, count):
        self._tree, self._other, self.count = tree, other, count

    def __getattr__(self, name):
        return getattr(self._tree, name)

    def multi(self, operations):
        if self.count:
            self.count -= 1
            self._other(self.count)
        return self._tree.multi(operations)


@pytest.fixture
def tree(tmp_path):
    tree = EmbeddedTree(tmp_path, clock_ms=lambda: 1)
    tree.ensure_paths(znodes.PERSISTENT_PATHS)
    yield tree
    tree.close()


def users_of(tree, made=None):
    reader = ClusterStateReader(tree)
    reader.load()
    return UserCredentials(made or tree, reader)


def texts(tree):
    return znodes.decode_config(tree.get(BOB)[0])


def busy(tree, other, count=1):
    return users_of(tree, Busy(tree, other, count))


@pytest.mark.parametrize("exists", [False, True])
def test_a_change_that_another_broker_overtook_is_done_again(tree, exists):
    """Before, the client got an error, or its change undid that of the other broker."""
    other = users_of(tree)
    if exists:
        other.store("bob", "SCRAM-SHA-512", CREDENTIAL)
    late = busy(tree, lambda _: other.store("bob", "SCRAM-SHA-256", CREDENTIAL))
    late.store("bob", "SCRAM-SHA-512", CREDENTIAL._replace(iterations=5000))
    found = texts(tree)
    assert set(found) == set(HASHES)
    assert credentials.decode(found["SCRAM-SHA-512"]).iterations == 5000


def test_a_user_that_was_deleted_meanwhile_is_made_again(tree):
    other = users_of(tree)
    other.store("bob", "SCRAM-SHA-512", CREDENTIAL)
    late = busy(tree, lambda _: other.delete("bob", "SCRAM-SHA-512"))
    late.store("bob", "SCRAM-SHA-256", CREDENTIAL)
    assert set(texts(tree)) == {"SCRAM-SHA-256"}


def test_a_deletion_that_another_broker_overtook_finds_nothing(tree):
    other = users_of(tree)
    other.store("bob", "SCRAM-SHA-512", CREDENTIAL)
    late = busy(tree, lambda _: other.delete("bob", "SCRAM-SHA-512"))
    with pytest.raises(ResourceNotFound):
        late.delete("bob", "SCRAM-SHA-512")
    assert tree.exists(BOB) is None


def test_a_deletion_keeps_what_another_broker_set_meanwhile(tree):
    other = users_of(tree)
    other.store("bob", "SCRAM-SHA-512", CREDENTIAL)
    late = busy(tree, lambda _: other.store("bob", "SCRAM-SHA-256", CREDENTIAL))
    late.delete("bob", "SCRAM-SHA-512")
    assert set(texts(tree)) == {"SCRAM-SHA-256"}


def test_a_user_that_others_change_again_and_again_ends_in_an_error(tree):
    other = users_of(tree)

    def change(count):
        other.store("bob", "SCRAM-SHA-256", CREDENTIAL._replace(iterations=5000 + count))

    late = busy(tree, change, count=ATTEMPTS_MAX + 1)
    with pytest.raises(StoreUnavailable):
        late.store("bob", "SCRAM-SHA-512", CREDENTIAL)
    assert set(texts(tree)) == {"SCRAM-SHA-256"}


def test_many_threads_of_many_brokers_lose_no_change(tree):
    together, errors = threading.Barrier(4), []

    def alter(number):
        users = users_of(tree)
        together.wait(10)
        try:
            for turn in range(20):
                users.store(f"u{turn}", list(HASHES)[number % 2], CREDENTIAL)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=alter, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert errors == []
    for turn in range(20):
        data, _ = tree.get(f"/config/users/u{turn}")
        assert set(znodes.decode_config(data)) == set(HASHES)
