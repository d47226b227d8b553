"""Delegation tokens (KIP-48): who makes, renews, ends and sees them, and logins with them. Apache
Kafka 4.3.1 was asked on 2026-11-25; docs/decisions/logins.md has the differences."""

import base64
import json
import re
import subprocess

import pytest
from compat.support import KAFKA, QUICK_HEAP, Wire, rival
from security.login_broker import (
    PASSWORD,
    PLAIN_MODULE,
    SAFE,
    SCRAM_MODULE,
    login_broker,
    scram_final,
)
from security.ruled_broker import Ruled
from security.users import alter, upsertion

from barnabas.security.acl_codes import (
    CREATE_TOKENS,
    DELEGATION_TOKEN,
    DESCRIBE,
    DESCRIBE_TOKENS,
    USER,
)
from barnabas.wire import request, response
from barnabas.wire.headers import encode_request

DAY_MS = 86_400_000
FAILED, DISABLED, NOT_FOUND, MISMATCH, NOT_ALLOWED, FORBIDDEN = 58, 61, 62, 63, 64, 65
EXPIRED, BAD_TYPE = 66, 67
INVALID = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism "
    "SCRAM-SHA-256"
)
SETTINGS = {
    "delegation.token.secret.key": "no one's secret",
    "delegation.token.max.lifetime.ms": str(7 * DAY_MS),
    "delegation.token.expiry.time.ms": str(DAY_MS),
    "delegation.token.expiry.check.interval.ms": str(DAY_MS // 24),
    "connections.max.idle.ms": "-1",
    SAFE + "plain.sasl.jaas.config": " ".join(
        [f"{PLAIN_MODULE} required", *(f'user_{u}="{PASSWORD}"' for u in ("alice", "carol"))]
    )
    + ";",
}  # fmt: skip


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    with login_broker(tmp_path_factory.mktemp("tokens"), **SETTINGS) as made:
        with Wire(made.plain) as wire:
            alter(wire, upsertions=[upsertion("bob", PASSWORD)])
        yield made


def log_in(conversation, user="alice"):
    assert conversation.handshake("PLAIN") == 0
    assert conversation.token(f"\0{user}\0{PASSWORD}".encode())[0] == 0


def log_in_by_token(conversation, token, mechanism="SCRAM-SHA-256", password=None):
    """The broker's answers to both messages."""
    assert conversation.handshake(mechanism) == 0
    bare = f"n={token.tokenId},r=abc,tokenauth=true".encode()
    first = conversation.token(b"n,," + bare)
    if first[0]:
        return first, None
    secret = password or base64.b64encode(bytes(token.hmac)).decode()
    final, expected = scram_final(mechanism, secret, bare, first[2])
    last = conversation.token(final)
    assert last[0] or last[2] == expected
    return first, last


def ask(conversation, key, version, **fields):
    message = encode_request(key, version, 7, "c", request(key).cls(**fields), framed=False)
    answer = conversation.ask(message)
    header_bytes = 5 if version >= 2 else 4
    return response(key).decode(answer, version, header_bytes)


def create(conversation, *, version=3, renewers=(), lifetime_ms=-1, owner=None, kind="User"):
    rows = [request(38).struct("renewers")(principalType=t, principalName=n) for t, n in renewers]
    more = {} if owner is None else {"ownerPrincipalType": kind, "ownerPrincipalName": owner}
    if owner is None and version >= 3:
        more = {"ownerPrincipalType": None, "ownerPrincipalName": None}
    return ask(conversation, 38, version, renewers=rows, maxLifetimeMs=lifetime_ms, **more)


def renew(conversation, hmac, period_ms=-1, version=2):
    return ask(conversation, 39, version, hmac=hmac, renewPeriodMs=period_ms)


def expire(conversation, hmac, period_ms=-1, version=2):
    return ask(conversation, 40, version, hmac=hmac, expiryTimePeriodMs=period_ms)


def described(conversation, owners=None, version=3):
    row = request(41).struct("owners")
    rows = None if owners is None else [row(principalType=t, principalName=n) for t, n in owners]
    return ask(conversation, 41, version, owners=rows)


def outcome(answer):
    return answer.errorCode, answer.expiryTimestampMs


@pytest.fixture
def alice(tokens):
    with tokens.connect() as c:
        log_in(c)
        yield c


@pytest.fixture
def carol(tokens):
    with tokens.connect() as c:
        log_in(c, "carol")
        yield c


def test_delegation_token_secret_key(tokens, alice):
    """A token is made, and its holder logs in as its owner."""
    made = create(alice, renewers=[("User", "carol")])
    assert (made.errorCode, made.principalType, made.principalName) == (0, "User", "alice")
    assert (made.tokenRequesterPrincipalType, made.tokenRequesterPrincipalName) == ("User", "alice")
    assert made.expiryTimestampMs - made.issueTimestampMs == DAY_MS
    assert made.maxTimestampMs - made.issueTimestampMs == 7 * DAY_MS
    assert len(made.tokenId) == 22 and len(made.hmac) == 64
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        with tokens.connect() as c:
            first, last = log_in_by_token(c, made, mechanism)
            assert first[0] == last[0] == 0 and first[2].endswith(b",i=4096")
            assert c.is_served()


def test_every_version(alice):
    for version in range(1, 4):
        made = create(alice, version=version)
        assert made.errorCode == 0
        hmac = bytes(made.hmac)
        for key in (renew, expire):
            assert key(alice, hmac, 1000, version=min(version, 2)).errorCode == 0
        [row] = [r for r in described(alice, version=version).tokens if r.tokenId == made.tokenId]
        assert bytes(row.hmac) == hmac


def test_the_node_has_kafkas_form_and_not_the_hmac(tokens, alice):
    made = create(alice, renewers=[("User", "b/c")])
    tree = tokens.broker.node.bound.before.before.tree
    data = tree.get(f"/delegation_token/tokens/{made.tokenId}")[0]
    assert json.loads(data) == {
        "version": 3,
        "owner": "User%3Aalice",
        "tokenRequester": "User%3Aalice",
        "renewers": ["User%3Ab%2Fc"],
        "issueTimestamp": made.issueTimestampMs,
        "maxTimestamp": made.maxTimestampMs,
        "expiryTimestamp": made.expiryTimestampMs,
        "tokenId": made.tokenId,
    }
    assert base64.b64encode(bytes(made.hmac)) not in data


def test_a_node_of_an_older_kafka_is_read(tokens, alice):
    tree = tokens.broker.node.bound.before.before.tree
    found = {"version": 1, "owner": "User%3Aalice", "renewers": [], "issueTimestamp": 1}
    found |= {"maxTimestamp": 2**62, "expiryTimestamp": 2**62, "tokenId": "old_1"}
    tree.create("/delegation_token/tokens/old_1", json.dumps(found).encode())
    [row] = [row for row in described(alice).tokens if row.tokenId == "old_1"]
    assert (row.principalName, row.tokenRequesterPrincipalName) == ("alice", "alice")
    assert outcome(renew(alice, bytes(row.hmac)))[0] == 0


def test_the_lifetime_that_a_client_asks_for_is_limited(alice):
    for asked_ms, lives_ms, max_ms in (
        (0, DAY_MS, 7 * DAY_MS),
        (1000, 1000, 1000),
        (2**63 - 1, DAY_MS, 7 * DAY_MS),
    ):
        made = create(alice, lifetime_ms=asked_ms)
        assert made.expiryTimestampMs - made.issueTimestampMs == lives_ms
        assert made.maxTimestampMs - made.issueTimestampMs == max_ms


def test_the_owner_and_renewers_renew_and_end_a_token_and_no_one_else(tokens, alice, carol):
    made = create(alice)
    hmac, wall_ms = bytes(made.hmac), tokens.broker.node.clock.wall_ms
    assert outcome(renew(carol, hmac)) == outcome(expire(carol, hmac)) == (MISMATCH, 0)
    made = create(alice, renewers=[("User", "carol")])
    hmac = bytes(made.hmac)
    code, until_ms = outcome(renew(carol, hmac, 5000))
    assert code == 0 and 0 <= wall_ms() + 5000 - until_ms < 5000
    code, until_ms = outcome(renew(carol, hmac, 0))
    assert code == 0 and 0 <= wall_ms() + DAY_MS - until_ms < 5000
    code, until_ms = outcome(expire(carol, hmac, 9000))
    assert code == 0 and 0 <= wall_ms() + 9000 - until_ms < 5000
    assert expire(carol, hmac, 2**63 - 1).expiryTimestampMs == made.maxTimestampMs
    assert outcome(expire(carol, hmac))[0] == 0
    assert outcome(renew(carol, hmac)) == outcome(expire(carol, hmac)) == (NOT_FOUND, 0)
    assert outcome(renew(carol, b"")) == (NOT_FOUND, 0)


def seen(conversation, owners=None):
    return {row.tokenId for row in described(conversation, owners).tokens}


def test_tokens_of_the_named_owners_and_renewers_are_shown(alice):
    own, shared = create(alice), create(alice, renewers=[("User", "carol")])
    assert {own.tokenId, shared.tokenId} <= seen(alice) & seen(alice, [("User", "alice")])
    assert seen(alice, [("User", "carol")]) & {own.tokenId, shared.tokenId} == {shared.tokenId}
    assert seen(alice, [("Group", "alice")]) == seen(alice, []) == set()


@pytest.fixture(scope="module")
def ruled(tmp_path_factory):
    """With access rules, of which there are none yet; alice may do everything."""
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:alice",
    }
    folder = tmp_path_factory.mktemp("ruled")
    with login_broker(folder, **SETTINGS | settings) as made:
        yield made


def test_with_access_rules_a_user_has_its_own_tokens_alone(ruled):
    with ruled.connect() as alice, ruled.connect() as carol:
        log_in(alice)
        log_in(carol, "carol")
        own, shared = create(alice), create(alice, renewers=[("User", "carol")])
        hers = create(carol)
        assert hers.errorCode == 0
        assert seen(carol) == {hers.tokenId, shared.tokenId}
        assert seen(alice) == {hers.tokenId, shared.tokenId, own.tokenId}
        refused = create(carol, owner="alice")
        assert (refused.errorCode, refused.issueTimestampMs) == (FORBIDDEN, -1)
        assert (refused.principalName, refused.tokenRequesterPrincipalName) == ("alice", "carol")
        made = create(alice, owner="carol")
        assert (made.errorCode, made.principalName) == (0, "carol")
        assert made.tokenId in seen(carol)
        with ruled.connect() as c:
            assert log_in_by_token(c, made)[1][0] == 0
        rules = Ruled(ruled.broker)
        for right, more in (
            ((DESCRIBE_TOKENS, USER, "User:alice"), own.tokenId),
            ((DESCRIBE, DELEGATION_TOKEN, own.tokenId), own.tokenId),
        ):
            with rules.rights([right], "User:carol"):
                assert more in seen(carol)
            assert more not in seen(carol)
        with rules.rights([(CREATE_TOKENS, USER, "User:alice")], "User:carol"):
            assert create(carol, owner="alice").errorCode == 0


def test_a_token_makes_no_tokens(tokens, alice):
    made = create(alice)
    with tokens.connect() as c:
        log_in_by_token(c, made)
        hmac = bytes(made.hmac)
        assert (create(c).errorCode, create(c).issueTimestampMs) == (NOT_ALLOWED, -1)
        assert outcome(renew(c, hmac)) == outcome(expire(c, hmac)) == (NOT_ALLOWED, -1)
        assert described(c).errorCode == NOT_ALLOWED


def test_a_client_without_login_gets_no_token(tokens):
    with Wire(tokens.plain) as wire:
        for key, version in ((38, 3), (39, 2), (40, 2), (41, 3)):
            assert wire.call(key, version, request(key).cls()).errorCode == NOT_ALLOWED


def test_the_owner_of_a_token_is_a_user(alice):
    """Its logins are those of a user, whatever the type: Kafka takes every type."""
    assert create(alice, owner="alice").errorCode == 0
    assert create(alice, owner="alice", kind="Group").errorCode == BAD_TYPE


def test_a_renewer_is_a_user(alice):
    assert create(alice, renewers=[("Group", "x")]).errorCode == BAD_TYPE


def test_without_a_secret_key_there_are_no_tokens(login):
    with login.connect() as c:
        assert c.handshake("PLAIN") == 0
        assert c.token(f"\0alice\0{PASSWORD}".encode())[0] == 0
        assert create(c).errorCode == DISABLED
        assert outcome(renew(c, b"x"))[0] == outcome(expire(c, b"x"))[0] == DISABLED
        assert described(c).errorCode == DISABLED
    with login.connect() as c:
        assert c.handshake("SCRAM-SHA-256") == 0
        assert c.token(b"n,,n=x,r=abc,tokenauth=true") == (FAILED, INVALID, b"")


def test_delegation_token_master_key_is_its_former_name(tmp_path):
    settings = {
        "delegation.token.secret.key": None,
        "delegation.token.master.key": "no one's secret",
    }
    with login_broker(tmp_path, **SETTINGS | settings) as login, login.connect() as c:
        log_in(c)
        assert create(c).errorCode == 0


def test_a_token_that_does_not_exist_fails_where_a_wrong_hmac_does(tokens, alice):
    made = create(alice)
    other = create(alice)
    other.tokenId = "A" * 22
    other_id = bytes(made.hmac)
    for token, password in (
        (made, "bad"),
        (made, base64.b64encode(other_id[::-1]).decode()),
        (other, None),
    ):
        with tokens.connect() as c:
            first, last = log_in_by_token(c, token, password=password)
            assert first[0] == 0 and last == (FAILED, INVALID, b"")
            assert c.is_closed()


@pytest.mark.parametrize("name", ["", "..", "a/b", "%2E", "=2C", "x" * 1000, "é"])
def test_a_malformed_id_is_not_a_token(tokens, name):
    with tokens.connect() as c:
        assert c.handshake("SCRAM-SHA-256") == 0
        bare = f"n={name},r=abc,tokenauth=true".encode()
        first = c.token(b"n,," + bare)
        if first[0] == 0:
            final, _ = scram_final("SCRAM-SHA-256", "x", bare, first[2])
            first = c.token(final)
        assert first == (FAILED, INVALID, b"")


def test_the_id_of_a_token_is_no_user_and_a_user_no_token(tokens, alice):
    made = create(alice)
    with tokens.connect() as c:
        assert c.handshake("SCRAM-SHA-256") == 0
        bare = f"n={made.tokenId},r=abc".encode()
        first = c.token(b"n,," + bare)
        password = base64.b64encode(bytes(made.hmac)).decode()
        assert c.token(scram_final("SCRAM-SHA-256", password, bare, first[2])[0])[0] == FAILED
    with tokens.connect() as c:
        assert c.handshake("SCRAM-SHA-256") == 0
        bare = b"n=bob,r=abc,tokenauth=true"
        first = c.token(b"n,," + bare)
        assert c.token(scram_final("SCRAM-SHA-256", PASSWORD, bare, first[2])[0])[0] == FAILED


def test_a_login_ends_with_its_token_and_an_expired_one_logs_no_client_in(tokens, alice):
    made = create(alice, lifetime_ms=60_000)
    with tokens.connect() as c:
        log_in_by_token(c, made)
        tokens.broker.node.clock.move(61_000)
        assert not c.is_served()
    with tokens.connect() as c:
        assert log_in_by_token(c, made)[1] == (FAILED, INVALID, b"")
    assert outcome(renew(alice, bytes(made.hmac))) == (EXPIRED, 0)
    assert outcome(expire(alice, bytes(made.hmac), 5)) == (EXPIRED, 0)


def test_the_settings_of_tokens(tmp_path):
    settings = {
        "delegation.token.max.lifetime.ms": "5000",
        "delegation.token.expiry.time.ms": "2000",
    }
    with login_broker(tmp_path, **SETTINGS | settings) as login, login.connect() as c:
        log_in(c)
        made = create(c)
        assert made.expiryTimestampMs - made.issueTimestampMs == 2000
        assert made.maxTimestampMs - made.issueTimestampMs == 5000


def test_the_tokens_of_the_tree_expire(tokens, alice):
    """delegation.token.expiry.check.interval.ms=3600000"""
    made = create(alice, lifetime_ms=1000)
    kept = create(alice)
    broker = tokens.broker
    broker.clock.advance(hours=1)
    left = {row.tokenId for row in described(alice).tokens}
    assert made.tokenId not in left and kept.tokenId in left
    assert outcome(renew(alice, bytes(made.hmac))) == (NOT_FOUND, 0)


def test_a_first_message_cut_at_each_byte_logs_no_client_in(tokens, alice):
    made = create(alice)
    message = f"n,,n={made.tokenId},r=abc,tokenauth=true".encode()
    for at in range(len(message)):
        with tokens.connect() as c:
            assert c.handshake("SCRAM-SHA-256") == 0
            first = c.token(message[:at])
            if first[0] == 0:
                bare = message[3:at]
                password = base64.b64encode(bytes(made.hmac)).decode()
                assert (
                    c.token(scram_final("SCRAM-SHA-256", password, bare, first[2])[0])[0] == FAILED
                )


def test_no_hmac_is_logged(tokens, alice, caplog):
    caplog.set_level(0)
    made = create(alice)
    with tokens.connect() as c:
        log_in_by_token(c, made)
    expire(alice, bytes(made.hmac))
    assert made.tokenId in caplog.text
    assert base64.b64encode(bytes(made.hmac)).decode() not in caplog.text
    assert bytes(made.hmac).hex() not in caplog.text
    assert "no one's secret" not in caplog.text


@pytest.mark.java
def test_kafka_delegation_tokens(tokens, tmp_path):
    """Kafka's own tool makes, shows, renews and ends a token; its client logs in with it."""
    if reason := rival.missing(KAFKA):
        pytest.skip(reason)

    def tool(verb, line, *arguments, mechanism="PLAIN"):
        properties = tmp_path / "client.properties"
        properties.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={line}\n"
        )
        command = rival.tool(KAFKA, verb, tmp_path / "tool.log", heap=QUICK_HEAP)
        command += ["--bootstrap-server", tokens.safe, "--command-config", str(properties)]
        done = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    by_password = f'{PLAIN_MODULE} required username="alice" password="{PASSWORD}";'
    verb = "delegation-tokens"
    said = tool(
        verb, by_password, "--create", "--max-life-time-period", "-1",
        "--renewer-principal", "User:carol",
    )  # fmt: skip
    token_id, hmac = re.search(r"\n([-_A-Za-z0-9]{22}) +(\S{88}) +User:alice", said).groups()
    assert hmac in tool(verb, by_password, "--describe", "--owner-principal", "User:alice")
    by_token = f'{SCRAM_MODULE} required username="{token_id}" password="{hmac}" tokenauth="true";'
    tool("topics", by_token, "--list", mechanism="SCRAM-SHA-512")
    said = tool(verb, by_password, "--renew", "--renew-time-period", "-1", "--hmac", hmac)
    assert "Completed renew operation" in said
    said = tool(verb, by_password, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert "Completed expire operation" in said
    assert token_id not in tool(verb, by_password, "--describe")
