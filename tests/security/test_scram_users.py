"""SCRAM credentials in the metadata tree. The expected answers are Apache Kafka 4.3.1's."""

import json

import pytest
from compat.support import Wire
from security.login_broker import PASSWORD, login_broker, scram_login
from security.users import alter, described, upsertion

NOT_THERE = "Attempt to delete a user credential that does not exist"
TWICE = "A user credential cannot be altered twice in the same request"


@pytest.fixture(scope="module")
def users(login):
    with Wire(login.plain) as wire:
        yield wire


@pytest.mark.parametrize(
    ("deletions", "upsertions", "answer"),
    [
        ([("nope", 1)], [], (91, NOT_THERE)),
        ([("bob", 9)], [], (33, "Unknown SCRAM mechanism")),
        ([], [upsertion("x", "p", mechanism=0)], (33, "Unknown SCRAM mechanism")),
        ([("", 1)], [upsertion("", "p")], (93, "Username must not be empty")),
        ([], [upsertion("x", "p", iterations=4095)], (93, "Too few iterations")),
        ([], [upsertion("x", "p", iterations=16385)], (93, "Too many iterations")),
        ([], [upsertion("x", "p"), upsertion("x", "p", mechanism=2)], (92, TWICE)),
        ([("bob", 1)], [upsertion("bob", "p")], (92, TWICE)),
        ([("bob", 1), ("bob", 1)], [], (92, TWICE)),
        ([], [upsertion("x", "p"), upsertion("x", "p", iterations=1)], (92, TWICE)),
    ],
)
def test_a_change_that_is_refused_changes_nothing(users, deletions, upsertions, answer):
    before = described(users)
    found = alter(users, deletions=deletions, upsertions=upsertions)
    assert list(found.values()) == [answer]
    assert described(users) == before


def test_a_refused_user_does_not_stop_the_others(users):
    found = alter(users, deletions=[("nope", 1)], upsertions=[upsertion("carl", "p", 1, 16384)])
    assert found == {"nope": (91, NOT_THERE), "carl": (0, None)}
    assert described(users, ["carl", "nope", "bob"]) == {
        "carl": (0, {1: 16384}),
        "nope": (91, {}),
        "bob": (0, {1: 4096, 2: 4096}),
    }
    assert alter(users, deletions=[("carl", 1)]) == {"carl": (0, None)}
    assert described(users, ["carl"]) == {"carl": (91, {})}
    assert set(described(users)) == {"bob"}


def test_a_user_described_twice_is_refused(users):
    assert described(users, ["bob", "bob"]) == {"bob": (92, {})}


@pytest.mark.parametrize("name", ["a/b c,=é", ".", "..", "%2E", "<default>", "x" * 200])
def test_odd_names_log_in(login, users, name):
    assert alter(users, upsertions=[upsertion(name, "p")]) == {name: (0, None)}
    assert described(users, [name]) == {name: (0, {1: 4096})}
    with login.connect() as c:
        escaped = name.replace("=", "=3D").replace(",", "=2C")
        _, last, expected = scram_login(c, "SCRAM-SHA-256", escaped, "p")
        assert last == (0, "", expected)
    assert alter(users, deletions=[(name, 1)]) == {name: (0, None)}


def test_a_deleted_or_changed_credential_counts_at_once(login, users):
    for change, password, code in (
        ({"upsertions": [upsertion("dora", "one")]}, "one", 0),
        ({"upsertions": [upsertion("dora", "two")]}, "one", 58),
        ({}, "two", 0),
        ({"deletions": [("dora", 1)]}, "two", 58),
    ):
        if change:
            assert alter(users, **change) == {"dora": (0, None)}
        with login.connect() as c:
            assert scram_login(c, "SCRAM-SHA-256", "dora", password)[1][0] == code


def test_credentials_survive_a_restart_in_kafkas_form_without_the_password(tmp_path):
    with login_broker(tmp_path) as login, Wire(login.plain) as wire:
        alter(wire, upsertions=[upsertion("eve", PASSWORD, 2)])
        data, _ = login.broker.node.bound.before.before.tree.get("/config/users/eve")
    found = json.loads(data)
    assert found["version"] == 1
    fields = dict(part.split("=", 1) for part in found["config"]["SCRAM-SHA-512"].split(","))
    assert list(fields) == ["salt", "stored_key", "server_key", "iterations"]
    assert PASSWORD not in data.decode()
    for file in (tmp_path / "data").rglob("*"):
        if file.is_file():
            assert PASSWORD.encode() not in file.read_bytes(), file
    with login_broker(tmp_path) as login, login.connect() as c:
        _, last, expected = scram_login(c, "SCRAM-SHA-512", "eve", PASSWORD)
        assert last == (0, "", expected)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "salt=,stored_key=,server_key=,iterations=x",
        "salt=c2FsdA==,stored_key=c2FsdA==,server_key=c2FsdA==,iterations=1",
        "salt=c2FsdA==,stored_key=c2FsdA==,server_key=c2FsdA==,iterations=99999",
        "salt=c2FsdA==,stored_key=c2FsdA==,iterations=4096",
    ],
)
def test_a_stored_credential_that_is_damaged_or_weak_logs_no_client_in(login, text):
    opened = login.broker.node.bound.before.before
    opened.tree.ensure_path("/config/users/frank")
    data = json.dumps({"version": 1, "config": {"SCRAM-SHA-256": text}}).encode()
    opened.tree.set("/config/users/frank", data)
    opened.reader.refresh_config(["users/frank"])
    with login.connect() as c:
        first, last, _ = scram_login(c, "SCRAM-SHA-256", "frank", "p")
        assert first[2].endswith(b",i=4096") and last[0] == 58
