"""No path answers a client without rights, nor one whose rights were just taken away.

Each API is asked in each version by alice, who has every right, and by bob, who has none, the same
bytes; then alice's rights go, and she asks again on her open connections. Each asks twice, so that
every path answers that there is, on a single node and on a broker of a cluster, which serves
requests of other brokers too:

    python          a request handler, each time
    native          a network thread: the first time by a decision of Python, then by the table of
                    decisions alone
    cache           the answer that Python gave to the same question before
    fetch session   the partitions that the session remembers, which the request does not name

The answers are those of Apache Kafka 4.3.1 (kafka_access.tsv), and for requests between brokers
those of 3.9.2 on ZooKeeper (kafka_access_zookeeper.tsv). What native handlers ask for is compared
with their row in the table of access rules.
"""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import pytest
from compat.support import Wire
from oracle.produce import batch, produce_frame
from security import record_access
from security.access_questions import (
    CLOSED,
    GROUP,
    NEW,
    PERMITTED,
    RIGHTS,
    SEES,
    TOPIC,
    TXN_ID,
    ask,
    questions,
    reduced,
    rights_of,
)
from security.guarded import guarded
from security.login_broker import PLAIN_MODULE
from security.ruled_broker import on_zookeeper, ruled_broker
from security.test_access_of_apis import EVERY
from security.test_cached_answers import logged_in
from security.test_denied_is_not_done import find
from security.test_native_rights import fetch_body

from barnabas.cext.network.response_cache import ResponseCache
from barnabas.controller.topics import NewTopic
from barnabas.security import acl_codes
from barnabas.wire import request, response
from barnabas.wire.uuids import uuid_bytes, uuid_text

USERS, ADMIN = ("alice", "bob", "carol"), "admin"
FETCH, SESSIONS_FROM = 1, 7
METADATA = 3
PRODUCE, PRODUCE_WITH_ID = 0, 3  # from this version on a request names a transactional id
CREATE_TOKEN, RENEW_TOKEN, EXPIRE_TOKEN, DESCRIBE_TOKENS = 38, 39, 40, 41
OWNERS_FROM = 3
NOT_THE_OWNER = 63
# Logins, and what every client may ask, as in Kafka.
OPEN_TO_ALL = {"SaslHandshake", "ApiVersions", "SaslAuthenticate", "DescribeCluster"}
OPEN_TO_ALL |= {"GetTelemetrySubscriptions", "PushTelemetry"}
# Kafka 4.3.1 fails with UNKNOWN_SERVER_ERROR, whatever the rights.
OWN = {(78, "two topics"): "30"}
# A token's HMAC is the right to it.
BY_HMAC = {"RenewDelegationToken", "ExpireDelegationToken"}


class Question(NamedTuple):
    key: int
    version: int
    case: str
    ask: Callable[[Wire], str]
    refused: str  # the answer without rights
    permitted: tuple[str, ...] = (PERMITTED, f"{PERMITTED} {SEES}")


@pytest.fixture(scope="module", params=["alone", pytest.param("cluster", marks=pytest.mark.java)])
def ruled(request, tmp_path_factory):
    given = " ".join(f'user_{user}="{user}"' for user in (*USERS, ADMIN))
    own = f'username="{ADMIN}" password="{ADMIN}"'  # of this broker, which is a super user
    settings = {
        "broker.id": "1",
        "listeners": "SAFE://127.0.0.1:0",
        "listener.security.protocol.map": "SAFE:SASL_PLAINTEXT",
        "inter.broker.listener.name": "SAFE",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.safe.plain.sasl.jaas.config": f"{PLAIN_MODULE} required {own} {given};",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "delegation.token.secret.key": "a secret of the test",
    }
    if request.param == "cluster":
        settings |= on_zookeeper(request.getfixturevalue("zookeeper_server"))
    with ruled_broker(tmp_path_factory.mktemp("paths"), **settings) as made:
        made.broker.node.serving.administration.topics.create(NewTopic(TOPIC, 1, 1), False)
        yield made


@pytest.fixture(scope="module")
def topic_id(ruled):
    return ruled.broker.node.cluster().topic(TOPIC).topic_id


@pytest.fixture(scope="module")
def carols_token(ruled):
    with logged_in(ruled, "carol") as wire:
        body = request(CREATE_TOKEN).cls(renewers=[], maxLifetimeMs=-1)
        made = wire.call(CREATE_TOKEN, 2, body)
        assert not made.errorCode
        return made


def refusals() -> dict[tuple[int, str], list[tuple[int, str]]]:
    """What Kafka answers without any right: by key and case, (version, answer)."""
    found = defaultdict(list)
    both = record_access.recorded(record_access.ZOOKEEPER_FILE) | record_access.recorded()
    for (key, case, version, right), answer in both.items():
        if right == "nothing" and answer != CLOSED:
            found[key, case].append((version, answer))
    return found | {case: [(0, answer)] for case, answer in OWN.items()}


def every_question(table, topic_id, token) -> Iterator[Question]:
    kafka = refusals()
    for key, api in table.items():
        for version in range(api.version_min, api.version_max + 1):
            for case, fields in questions(key, version, topic_id):
                # Kafka 4.3.1 lacks some of the first and latest versions: they are as the nearest.
                _, wanted = min(kafka[key, case], key=lambda row: abs(row[0] - version))
                put = partial(ask, key=key, version=version, fields=fields)
                yield Question(key, version, case, put, wanted)
            yield from token_questions(key, version, token)
    for version in range(SESSIONS_FROM, table[FETCH].version_max + 1):
        topic = uuid_bytes(topic_id) if version >= 13 else TOPIC
        put = FetchSessions(version, topic)
        yield Question(FETCH, version, "a session", put, "29 ok", (f"{PERMITTED} records",))


def token_questions(key, version, token) -> Iterator[Question]:
    if key == CREATE_TOKEN and version >= OWNERS_FROM:
        fields = {"ownerPrincipalType": "User", "ownerPrincipalName": "carol", "maxLifetimeMs": -1}
        put = partial(ask, key=key, version=version, fields=fields)
        yield Question(key, version, "of another user", put, "65")
    elif key == RENEW_TOKEN or key == EXPIRE_TOKEN:
        put = partial(code_of, key, version, request(key).cls(hmac=token.hmac))
        yield Question(key, version, "of another user", put, str(NOT_THE_OWNER), ("63",))
    elif key == DESCRIBE_TOKENS:
        put = partial(tokens_of_carol, version)
        yield Question(key, version, "all", put, "[]", (f"['{token.tokenId}']",))


def code_of(key, version, body, wire) -> str:
    return str(wire.call(key, version, body).errorCode)


def tokens_of_carol(version, wire) -> str:
    answer = wire.call(DESCRIBE_TOKENS, version, request(DESCRIBE_TOKENS).cls(owners=None))
    return str([row.tokenId for row in answer.tokens if row.principalName == "carol"][:1])


class FetchSessions:
    """Fetches of one version: the first on a connection opens a session with the topic, and later
    ones name no topic."""

    def __init__(self, version, topic) -> None:
        self.version, self.topic = version, topic
        self.opened: dict[Wire, tuple[int, int]] = {}  # id and epoch

    def __call__(self, wire) -> str:
        session_id, epoch = self.opened.get(wire, (0, 0))
        parts = [] if session_id else [(self.topic, 0)]
        body = fetch_body(self.version, parts, session=(session_id, epoch))
        answer = wire.call(FETCH, self.version, body)
        assert answer.sessionId > 0 and not answer.errorCode
        self.opened[wire] = answer.sessionId, epoch + 1
        parts = [part for row in answer.responses for part in row.partitions]
        assert len(parts) == 1
        read = any(part.records for part in parts)
        return reduced(response(FETCH), answer, self.version) + " records" * read


@pytest.mark.takes(seconds=20)
def test_no_path_answers_without_rights(ruled, topic_id, carols_token):
    bound = ruled.broker.node.bound
    table, reactor, native = bound.apis, bound.reactor, bound.native
    every = {right for text in RIGHTS for right in rights_of(text)}
    every |= {(acl_codes.CREATE, acl_codes.TOPIC, NEW)}
    every |= {(acl_codes.DESCRIBE_CONFIGS, acl_codes.TOPIC, NEW)}
    every |= {(acl_codes.CREATE_TOKENS, acl_codes.USER, "User:carol")}
    every |= {(acl_codes.DESCRIBE, acl_codes.DELEGATION_TOKEN, carols_token.tokenId)}
    asked = list(every_question(table, topic_id, carols_token))
    paths = defaultdict(set)
    wrong = []

    def expect(question, who, found, wanted):
        if found not in wanted:
            name = table[question.key].name
            wrong.append(f"{name} v{question.version}, {question.case}, {who}: {found}")

    with contextlib.ExitStack() as opened:
        wires: dict[tuple[str, int], Wire] = {}

        def wire_of(user, key):
            if (user, key) not in wires:
                wires[user, key] = opened.enter_context(logged_in(ruled, user))
            return wires[user, key]

        with ruled.rights(every, who="User:alice"):
            find(wire_of("alice", 0), 0, GROUP)
            find(wire_of("alice", 0), 1, TXN_ID)
            wire_of("alice", 0).call_raw(produce_frame([(TOPIC, 0, batch(3))], 9, framed=True))
            for question in asked:
                alice, bob = wire_of("alice", question.key), wire_of("bob", question.key)
                expect(question, "with rights", question.ask(alice), question.permitted)
                python = reactor.counters()["python_requests"]
                served = native.response_cache.served
                expect(question, "with rights", question.ask(alice), question.permitted)
                if reactor.counters()["python_requests"] > python:
                    paths["python"].add((question.key, question.version))
                elif native.response_cache.served > served:
                    paths["cache"].add((question.key, question.version))
                else:
                    paths["native"].add((question.key, question.version))
                for _ in range(2):
                    expect(question, "without", question.ask(bob), [question.refused])
        for question in asked:
            alice = wire_of("alice", question.key)
            for _ in range(2):
                expect(question, "taken", question.ask(alice), [question.refused])
    assert not wrong, "\n".join(wrong)
    assert paths["native"] >= natively_answered(native)
    every_version = {
        (key, version)
        for key, api in table.items()
        for version in range(api.version_min, api.version_max + 1)
    }
    assert paths["cache"] == {row for row in every_version if row[0] == METADATA}
    left = every_version - {(question.key, question.version) for question in asked}
    assert {table[key].name for key, _ in left} <= OPEN_TO_ALL | {"CreateDelegationToken"}


def natively_answered(native) -> set[tuple[int, int]]:
    return {
        (key, version)
        for handler in native.all
        if not isinstance(handler, ResponseCache)
        for key, first, last in handler.apis
        for version in range(first, last + 1)
    }


def test_only_these_apis_need_no_right():
    """Another one needs a reason, and its name here."""
    open_ones = {api.name for api in EVERY.values() if api.access().elsewhere.startswith("nothing")}
    assert open_ones == OPEN_TO_ALL | BY_HMAC


class Everything(set):
    """Every right."""

    def __contains__(self, right: object) -> bool:
        return True


def test_a_native_handler_asks_for_the_rights_of_its_row(tmp_path):
    """A native handler without a row, or with a wrong one, fails here; a row without one, too."""
    found = {}
    with guarded(tmp_path) as broker:
        topic_id = uuid_text(broker.topic(TOPIC))
        broker.given = Everything()
        with broker.connect() as wire:
            find(wire, 0, GROUP)  # without their topics Python answers
            find(wire, 1, TXN_ID)
        for key, version in sorted(natively_answered(broker.broker.node.bound.native)):
            broker.decisions.rules_changed()
            broker.asked.clear()
            with broker.connect() as wire:
                for _case, fields in questions(key, version, topic_id):
                    ask(wire, key, version, fields)
            found[key, version] = {(operation, kind) for _, _, operation, kind, _ in broker.asked}
    rows = {key: set(api.access().native) for key, api in EVERY.items()}
    wanted = {(key, version): set(rows[key]) for key, version in found}
    for version in range(PRODUCE_WITH_ID):
        wanted[PRODUCE, version] -= {(acl_codes.WRITE, acl_codes.TRANSACTIONAL_ID)}
    assert found == wanted
    assert {key for key, _ in found} == {key for key, row in rows.items() if row}
    assert all(found.values())
