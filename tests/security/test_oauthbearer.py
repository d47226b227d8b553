"""SASL OAUTHBEARER: who may log in with a token, and what clients are answered. Apache Kafka 4.3.1
was asked on 2026-11-25; docs/decisions/logins.md has the differences."""

import asyncio
import json
import logging
import socket
import subprocess
import time

import jwt
import pytest
from compat.support import KAFKA, QUICK_HEAP, rival
from security.json_tokens import (
    KEYS,
    MODULE,
    OAUTH,
    KeyServer,
    claims,
    first_message,
    jwk,
    key_set,
    oauth_settings,
    part,
    signed,
    unsigned,
)
from security.login_broker import PASSWORD, login_broker
from security.test_fails_closed import refusal
from security.test_reauthentication import lifetime_ms, token

from barnabas.security.json_web_keys import JsonWebKeys, Pauses, keys_of

FAILED = 58
INVALID = b'{"status":"invalid_token"}'
TEXT = "Authentication failed during authentication due to invalid credentials with SASL mechanism"


@pytest.fixture(scope="module")
def oauth(tmp_path_factory):
    folder = tmp_path_factory.mktemp("oauth")
    settings = oauth_settings(folder, **{"connections.max.idle.ms": "-1"})
    with login_broker(folder, **settings) as made:
        yield made


def answered(login, message):
    """(code, text, token) of the first message."""
    with login.connect() as c:
        assert c.handshake("OAUTHBEARER") == 0
        return c.token(message)


def is_taken(login, text):
    with login.connect() as c:
        assert c.handshake("OAUTHBEARER") == 0
        code, _, answer = c.token(first_message(text))
        assert code == 0 and answer in (b"", INVALID)
        if answer:
            assert c.token(b"\x01") == (FAILED, INVALID.decode(), b"")
            assert c.is_closed()
            return False
        assert c.is_served()
        return True


@pytest.mark.parametrize("name", ["r", "e", "f", "o"])
def test_a_token_of_a_key_in_the_set_logs_its_subject_in(oauth, caplog, name):
    caplog.set_level(logging.INFO)
    assert is_taken(oauth, signed(name))
    assert "logged in as 'User:alice'" in caplog.text


@pytest.mark.parametrize("algorithm", ["RS384", "RS512", "PS256"])
def test_other_algorithms_of_the_same_key(oauth, algorithm):
    assert is_taken(oauth, signed("r", algorithm=algorithm))


def with_alg(algorithm, key_id="r"):
    """A token whose header says what it was not signed with."""
    _, body, signature = signed().split(".")
    return f"{part({'alg': algorithm, 'kid': key_id})}.{body}.{signature}"


def shared_secret():
    """The public key as the secret of HS256: the confusion of algorithms."""
    from cryptography.hazmat.primitives import serialization as s

    pem = KEYS["r"].public_key().public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo)
    algorithm = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    head = f"{part({'alg': 'HS256', 'kid': 'r'})}.{part(claims())}"
    return f"{head}.{part(algorithm.sign(head.encode(), pem))}"


REFUSED = {
    "of another key": lambda: signed("other", header={"kid": "r"}),
    "of a key that is in no set": lambda: signed("other"),
    "of the algorithm none": lambda: f"{part({'alg': 'none', 'kid': 'r'})}.{part(claims())}.",
    "of the algorithm none without a key": unsigned,
    "of the algorithm NonE": lambda: with_alg("NonE"),
    "of a shared secret": shared_secret,
    "with another algorithm in its header": lambda: with_alg("RS512"),
    "with the algorithm of another kind": lambda: with_alg("ES256"),
    "with an algorithm that is no text": lambda: with_alg(None),
    "with a key id that is no text": lambda: with_alg("RS256", 7),
    "with a critical header": lambda: signed("r", header={"crit": ["b64"], "b64": True}),
    "with its own key in the header": lambda: signed(
        "other", header={"kid": "x", "jwk": jwk("other")}
    ),
    "of another issuer": lambda: signed(iss="https://other.example"),
    "without an issuer": lambda: signed(iss=None),
    "for another audience": lambda: signed(aud="web"),
    "without an audience": lambda: signed(aud=None),
    "that has expired": lambda: signed(exp=int(time.time()) - 31),
    "without an expiry": lambda: signed(exp=None),
    "without a time of issue": lambda: signed(iat=None),
    "whose expiry is no time": lambda: signed(exp=True),
    "whose expiry is below zero": lambda: signed(exp=-1),
    "that is not valid yet": lambda: signed(nbf=int(time.time()) + 100),
    "without a subject": lambda: signed(sub=None),
    "with a blank subject": lambda: signed(sub="  "),
    "with a long subject": lambda: signed(sub="a" * 1025),
    "with a scope twice": lambda: signed(scope=["a", "a"]),
    "with a blank scope": lambda: signed(scope=[""]),
    "with a scope that is no text": lambda: signed(scope=[1]),
    "with scopes that are no list": lambda: signed(scope={"a": 1}),
    "with one part": lambda: "abc",
    "with five parts": lambda: "a.b.c.d.e",
    "whose header is no JSON": lambda: "YQ.YQ.YQ",
    "with a deep header": lambda: part(b'{"alg":' + b"[" * 20_000) + ".e30.YQ",
    "with claims that are no object": lambda: jwt.api_jws.encode(
        b"[]", KEYS["r"], "RS256", headers={"kid": "r"}
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_token_is_refused(oauth, kind):
    assert not is_taken(oauth, REFUSED[kind]())


@pytest.mark.parametrize("header", ["jku", "x5u"])
def test_no_address_that_a_client_sends_is_asked(oauth, header):
    """CVE-2025-27817: the header names where its key is."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        address = f"http://127.0.0.1:{server.getsockname()[1]}/keys"
        for key_id in ("r", "x"):
            assert not is_taken(oauth, signed("other", header={"kid": key_id, header: address}))
        with pytest.raises(BlockingIOError):
            server.accept()


def test_a_key_fits_the_algorithms_of_its_own_kind_alone():
    """PyJWT refuses other kinds too; a key of the set is not even given to it."""
    fitting = {key.id: set(key.algorithms) for key in keys_of(key_set())}
    rsa = {f"{kind}{bits}" for kind in ("RS", "PS") for bits in (256, 384, 512)}
    assert fitting == {"r": rsa, "e": {"ES256"}, "f": {"ES384"}, "o": {"EdDSA"}}
    keys = JsonWebKeys(key_set, Pauses(1000, 1000, 1000), time.monotonic_ns)
    for key_id, found in fitting.items():
        for algorithm in (*rsa, "ES256", "ES384", "ES512", "EdDSA", "HS256", "none", ""):
            assert (keys.find(key_id, algorithm) is not None) is (algorithm in found)
    assert keys.find(None, "ES256").id == "e"
    two = JsonWebKeys(lambda: key_set("r", "other"), Pauses(1, 1, 1), time.monotonic_ns)
    assert two.find(None, "RS256") is None


def test_within_the_clock_skew_a_token_is_taken_for_no_time(oauth):
    """As in Kafka, the next request closes the connection: the login has ended already."""
    with oauth.connect() as c:
        assert c.handshake("OAUTHBEARER") == 0
        code, _, answer = c.token(first_message(signed(exp=int(time.time()) - 5)))
        assert (code, answer) == (0, b"")
        assert not c.is_served()


def test_audiences_scopes_and_times_in_their_other_forms(oauth):
    assert is_taken(oauth, signed(aud=["web", "other"]))
    assert is_taken(oauth, signed(scope="read"))
    assert is_taken(oauth, signed(scope=None))
    assert is_taken(oauth, signed(nbf=int(time.time()) + 5, exp=time.time() + 60.5))


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer " + b"a" * 65537 + b"\x01\x01",
        b"n,,\x01Auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer abc\x01x1=y\x01\x01",
        b"n,,\x01auth=Bearer abc\x01x=\x01\x01",
        b"n,,\x01auth=Bearer abc\x01x=\xff\x01\x01",
        b"n,a=a=b,\x01auth=Bearer abc\x01\x01",
        b"{}",
        b"\xff" * 1000,
    ],
)
def test_a_malformed_first_message_closes_the_connection(oauth, message):
    assert answered(oauth, message) == (FAILED, f"{TEXT} OAUTHBEARER", b"")


def test_the_authorization_id_must_be_the_subject(oauth):
    good = signed()
    assert answered(oauth, first_message(good, identity="a=alice")) == (0, "", b"")
    code, text, _ = answered(oauth, first_message(good, identity="a=bob"))
    assert code == FAILED and text == (
        "Authentication failed: Client requested an authorization id (bob) that is different from"
        " the token's principal name (alice)"
    )


def test_extensions_are_taken(oauth):
    message = first_message(signed(), extensions="logicalCluster=lkc-1\x01traceId=7\x01")
    assert answered(oauth, message) == (0, "", b"")


def test_after_a_refusal_a_good_token_comes_too_late(oauth):
    with oauth.connect() as c:
        assert c.handshake("OAUTHBEARER") == 0
        assert c.token(first_message(unsigned())) == (0, "", INVALID)
        assert c.token(first_message(signed())) == (FAILED, INVALID.decode(), b"")
        assert c.is_closed()


def test_tokens_without_headers(oauth):
    with oauth.connect() as c:
        assert c.handshake("OAUTHBEARER", version=0) == 0
        assert c.ask(first_message(signed())) == b""
        assert c.is_served()
    with oauth.connect() as c:
        assert c.handshake("OAUTHBEARER", version=0) == 0
        assert c.ask(first_message(unsigned())) == INVALID
        assert c.ask(b"\x01") is None


def test_a_message_cut_or_changed_at_each_byte_logs_no_client_in(oauth):
    good = first_message(signed("e"))
    for at in range(len(good)):
        for spoilt in (good[:at], good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]):
            with oauth.connect() as c:
                assert c.handshake("OAUTHBEARER") == 0
                code, _, answer = c.token(spoilt)
                # Bits of the last letter of a base64 part may be in no byte.
                assert code == FAILED or answer == INVALID or at == len(good) - 3, spoilt


def test_a_login_lasts_as_long_as_its_token(oauth):
    with oauth.connect() as c:
        assert c.handshake("OAUTHBEARER") == 0
        answer = token(c, first_message(signed(exp=int(time.time()) + 600)))
        assert 590_000 < lifetime_ms(answer) <= 600_000
        oauth.broker.node.clock.move(601_000)
        assert c.handshake("OAUTHBEARER") == 0
        assert c.token(first_message(signed(exp=int(time.time()) + 1200)))[0] == 0
        assert c.is_served()
        oauth.broker.node.clock.move(601_000)
        assert not c.is_served()
    oauth.broker.node.clock.move_wall(-1_202_000)


def test_no_token_is_logged_and_the_log_says_why_one_is_refused(oauth, caplog):
    caplog.set_level(0)
    tokens = [
        signed(),
        signed(sub="Mallory", iss="https://Mallory.example"),
        unsigned(sub="Mallory"),
    ]
    for text in tokens:
        is_taken(oauth, text)
    oauth.broker.node.serving.bad_requests.write()
    assert "the token is refused: its issuer is not sasl.oauthbearer.expected.issuer" in caplog.text
    assert "Mallory" not in caplog.text
    for text in tokens:
        for piece in text.split("."):
            assert len(piece) < 8 or piece not in caplog.text


# ------------------------------------------------------------------ settings


def test_claim_names_and_the_skew(tmp_path):
    settings = oauth_settings(
        tmp_path,
        **{
            "sasl.oauthbearer.sub.claim.name": "client",
            "sasl.oauthbearer.scope.claim.name": "scp",
            "sasl.oauthbearer.clock.skew.seconds": "1",
            OAUTH + "sasl.oauthbearer.clock.skew.seconds": "100",
        },
    )
    with login_broker(tmp_path, **settings) as login:
        good = {"client": "carol", "scope": 1, "scp": ["a"], "exp": int(time.time()) - 60}
        assert answered(login, first_message(signed(**good))) == (0, "", b"")
        assert answered(login, first_message(signed(**good | {"scp": 1})))[2] == INVALID
        assert answered(login, first_message(signed()))[2] == INVALID
        assert (
            answered(login, first_message(signed(**good | {"exp": time.time() - 101})))[2]
            == INVALID
        )


def test_an_issuer_or_audience_that_is_not_verified(tmp_path):
    settings = {
        "issuer": {
            "sasl.oauthbearer.expected.issuer": None,
            "sasl.oauthbearer.allow.unverified.issuer": "true",
        },
        "audience": {
            "sasl.oauthbearer.expected.audience": None,
            "sasl.oauthbearer.allow.unverified.audience": "true",
        },
    }
    for claim, other, changed in (
        ("iss", "aud", settings["issuer"]),
        ("aud", "iss", settings["audience"]),
    ):
        with login_broker(tmp_path / claim, **oauth_settings(tmp_path, **changed)) as login:
            assert is_taken(login, signed(**{claim: "https://other.example"}))
            assert is_taken(login, signed(**{claim: None}))
            assert not is_taken(login, signed(**{other: "https://other.example"}))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"sasl.oauthbearer.expected.issuer": None}, "expected.issuer is not set"),
        ({"sasl.oauthbearer.expected.audience": None}, "expected.audience is not set"),
        ({"sasl.oauthbearer.jwks.endpoint.url": None}, "jwks.endpoint.url is not set"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "http://localhost/k"}, "not an https: or file:"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "ftp://localhost/k"}, "not an https: or file:"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "file://elsewhere/k"}, "not an https: or file:"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "file:///none"}, "cannot be read"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "https://localhost:1/k"}, "cannot be read"),
        ({OAUTH + "sasl.server.callback.handler.class": None}, "unsafeUnsignedTokens"),
        ({OAUTH + "sasl.server.callback.handler.class": "org.example.Own"}, "handler.class"),
        ({OAUTH + "sasl.jaas.config": None}, "is not set"),
        ({OAUTH + "sasl.jaas.config": f"{MODULE}x required;"}, "the login module"),
        ({"listener.name.safe.plain.sasl.oauthbearer.expected.issuer": "x"}, "asks for SASL"),
        ({"listener.name.other.oauthbearer.sasl.oauthbearer.expected.issuer": "x"}, "no SASL"),
    ],
)
def test_a_setting_that_is_forgotten_or_wrong_stops_the_start(tmp_path, monkeypatch, changed, said):
    monkeypatch.delenv("KAFKA_OPTS", raising=False)
    assert said in refusal(tmp_path, **oauth_settings(tmp_path, **changed))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b'{"keys": 1}',
        b'{"keys": []}',
        b'{"keys": [1]}',
        b'{"keys": [{"kty": "oct", "k": "YQ", "kid": "r"}]}',
        b"[" * 100_000,
        json.dumps({"keys": [jwk("weak")]}).encode(),
        json.dumps({"keys": [jwk("r", use="enc")]}).encode(),
        json.dumps({"keys": [jwk("r", alg="HS256")]}).encode(),
        json.dumps({"keys": [{"kty": "RSA", "n": "", "e": ""}]}).encode(),
        b" " * (1 << 20) + key_set(),
    ],
)
def test_a_set_without_a_key_stops_the_start(tmp_path, text):
    (tmp_path / "jwks.json").write_bytes(text)
    assert "its keys cannot be read" in refusal(tmp_path, **oauth_settings(tmp_path))


def test_without_the_package_the_broker_does_not_start(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "jwt", None)
    assert "pip install 'barnabas[oauth]'" in refusal(tmp_path, **oauth_settings(tmp_path))


# ------------------------------------------------------------------ unsigned tokens


@pytest.fixture(scope="module")
def unsafe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unsafe")
    line = (
        f'{MODULE} required unsafeUnsignedTokens="true" unsecuredValidatorRequiredScope="read"'
        ' unsecuredValidatorAllowableClockSkewMs="3000";'
    )
    changed = {
        OAUTH + "sasl.jaas.config": line,
        OAUTH + "sasl.server.callback.handler.class": None,
        "sasl.oauthbearer.jwks.endpoint.url": None,
    }
    with login_broker(folder, **oauth_settings(folder, **changed)) as made:
        yield made


def test_unsigned_tokens_are_taken_where_the_jaas_line_says_so(unsafe):
    assert is_taken(unsafe, unsigned())
    assert is_taken(unsafe, unsigned(scope="write read", iat=None, iss=None, aud=None))
    for wrong in (
        {"scope": "write"},
        {"exp": None},
        {"exp": time.time() - 4},
        {"iat": time.time() + 100},
        {"iat": time.time() + 4000, "exp": time.time() + 3000},
        {"sub": None},
        {"sub": 7},
    ):
        assert not is_taken(unsafe, unsigned(**wrong)), wrong
    assert not is_taken(unsafe, signed())
    assert not is_taken(unsafe, unsigned() + "YQ")


# ------------------------------------------------------------------ keys over HTTPS


@pytest.fixture
def served(tmp_path):
    server = KeyServer()
    with server.running(tmp_path):
        yield server


def over_https(folder, server, **changed):
    line = f'{MODULE} required ssl.truststore.type="PEM" ssl.truststore.location="{folder}/ca.pem";'
    settings = {
        OAUTH + "sasl.jaas.config": line,
        "sasl.oauthbearer.jwks.endpoint.url": server.url,
    }
    return oauth_settings(folder, **settings | changed)


def test_keys_over_https(tmp_path, served):
    settings = {
        "sasl.oauthbearer.jwks.endpoint.url": served.url,
        "sasl.oauthbearer.jwks.endpoint.refresh.ms": "3600000",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "1000",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "10000",
    }
    with login_broker(tmp_path, **over_https(tmp_path, served, **settings)) as login:
        move = login.broker.node.clock.move
        assert is_taken(login, signed()) and served.asked == 1
        # A new key is read at once, but no unknown key makes the broker ask twice within 10 s.
        served.answer = (200, {}, key_set("r", "other"))
        assert not is_taken(login, signed("other")) and served.asked == 1
        move(10_000)
        assert is_taken(login, signed("other")) and served.asked == 2
        for _ in range(5):
            assert not is_taken(login, signed("e", header={"kid": "nope"}))
        assert served.asked == 2
        # Known keys are read again after an hour; what fails leaves them, and pauses grow.
        served.answer = (503, {}, b"")
        move(3_600_000)
        for asked, pause_ms in ((3, 1000), (4, 2000), (5, 4000)):
            for _ in range(3):
                assert is_taken(login, signed("other", exp=time.time() + 9999))
            assert served.asked == asked
            move(pause_ms)
        # A key that is gone from the set counts no more.
        served.answer = (200, {}, key_set("r"))
        assert not is_taken(login, signed("other", exp=time.time() + 9999))
        assert is_taken(login, signed("r", exp=time.time() + 9999))


@pytest.mark.parametrize(
    "answer",
    [
        (404, {}, b""),
        (302, {"Location": "https://localhost/keys"}, b""),
        (200, {}, b"<html>"),
        (200, {}, b" " * (1 << 20) + key_set()),
    ],
)
def test_an_answer_that_is_not_a_key_set_stops_the_start(tmp_path, served, answer):
    served.answer = answer
    assert "its keys cannot be read" in refusal(tmp_path, **over_https(tmp_path, served))


def test_a_server_that_no_authority_of_ours_vouches_for_stops_the_start(tmp_path, served):
    settings = over_https(tmp_path, served, **{OAUTH + "sasl.jaas.config": f"{MODULE} required;"})
    assert "CERTIFICATE_VERIFY_FAILED" in refusal(tmp_path, **settings)
    assert served.asked == 0


# ------------------------------------------------------------------ clients


def test_confluent_kafka(oauth):
    from confluent_kafka import KafkaException, Producer

    def producer(text):
        def give(_):
            return text, time.time() + 3000

        return Producer(
            {
                "bootstrap.servers": oauth.safe,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanisms": "OAUTHBEARER",
                "oauth_cb": give,
            }
        )

    good = producer(signed())
    good.poll(1)
    assert good.list_topics(timeout=10).brokers
    bad = producer(signed(iss="https://other.example"))
    bad.poll(1)
    with pytest.raises(KafkaException):
        bad.list_topics(timeout=2)


def test_aiokafka(oauth):
    from aiokafka import AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider
    from aiokafka.errors import KafkaError

    class Provider(AbstractTokenProvider):
        def __init__(self, text):
            self.text = text

        async def token(self):
            return self.text

    async def brokers_seen(text):
        producer = AIOKafkaProducer(
            bootstrap_servers=oauth.safe,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Provider(text),
        )
        try:
            await producer.start()
            return producer.client.cluster.brokers()
        finally:
            await producer.stop()

    assert asyncio.run(brokers_seen(signed()))
    with pytest.raises(KafkaError):
        asyncio.run(brokers_seen(signed(iss="https://other.example")))


def test_kafka_python(oauth):
    from kafka import KafkaAdminClient
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        def token(self):
            return signed()

    client = KafkaAdminClient(
        bootstrap_servers=oauth.safe,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Provider(),
    )
    assert client.describe_cluster()["brokers"]
    client.close()


@pytest.mark.java
def test_the_java_client(oauth, tmp_path):
    if reason := rival.missing(KAFKA):
        pytest.skip(reason)
    handler = MODULE.replace("LoginModule", "LoginCallbackHandler")
    for text, is_good in ((signed(), True), (signed(iss="https://other.example"), False)):
        file = tmp_path / f"token-{is_good}"
        file.write_text(text)
        properties = tmp_path / "client.properties"
        properties.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
            f"sasl.login.callback.handler.class={handler}\n"
            f"sasl.oauthbearer.token.endpoint.url={file.as_uri()}\n"
            f"sasl.jaas.config={MODULE} required;\n"
            "request.timeout.ms=5000\ndefault.api.timeout.ms=8000\n"
        )
        command = rival.tool(KAFKA, "topics", tmp_path / "tool.log", heap=QUICK_HEAP)
        command[1:1] = [
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.{kind}={where}"
            for kind, where in (("urls", file.as_uri()), ("files", file))
        ]
        command += ["--bootstrap-server", oauth.safe, "--command-config", str(properties), "--list"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        said = done.stdout + done.stderr
        assert (done.returncode == 0) is is_good, said
        assert is_good or '{"status":"invalid_token"}' in said


def test_plain_logs_in_beside_it(oauth):
    with oauth.connect() as c:
        assert c.handshake("PLAIN") == 0
        assert c.token(f"\0alice\0{PASSWORD}".encode())[0] == 0
        assert c.is_served()
