"""SASL GSSAPI against a KDC of Debian on loopback, and clients that log in with its tickets."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from compat.support import KAFKA, QUICK_HEAP, create_topic, rival
from security.key_distribution_center import REALM, Realm, missing
from security.login_broker import SAFE, login_broker
from security.test_fails_closed import refusal

JAAS = SAFE + "gssapi.sasl.jaas.config"
MODULE = "com.sun.security.auth.module.Krb5LoginModule"
SERVICE = "kafka/localhost"
FAILED = 58
INVALID = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism"
    " GSSAPI"
)
NO_NAME = (
    "Authentication failed: no rule of sasl.kerberos.principal.to.local.rules matches the principal"
)

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


def kerberos_settings(keytab, principal=f"{SERVICE}@{REALM}", **changed):
    line = (
        f'{MODULE} required useKeyTab=true storeKey=true keyTab="{keytab}" principal="{principal}";'
    )
    found = {
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        JAAS: line,
        SAFE + "plain.sasl.jaas.config": None,
        SAFE + "scram-sha-256.sasl.jaas.config": None,
        SAFE + "scram-sha-512.sasl.jaas.config": None,
    }
    return found | changed


@pytest.fixture(scope="module")
def realm(tmp_path_factory):
    made = Realm(tmp_path_factory.mktemp("realm"))
    with made.running(), pytest.MonkeyPatch.context() as patch:
        for name, value in made.environ.items():
            patch.setenv(name, value)
        for principal in (SERVICE, "alice", "bob/admin", "Own.carol", "other/localhost"):
            made.keytab(principal)
        yield made


@pytest.fixture(scope="module")
def kerberos(realm, tmp_path_factory):
    """Own.NAME is NAME; a principal of two parts has no name but the broker's own."""
    rules = (
        r"RULE:[1:$1](Own\..*)s/Own\.//,RULE:[2:$1](kafka),RULE:[1:$1@$0](.*@" + REALM + r")s/@.*//"
    )
    settings = {
        "sasl.kerberos.principal.to.local.rules": rules,
        "advertised.listeners": "SAFE://localhost:0,PLAINTEXT://127.0.0.1:0",
    }
    keytab = realm.folder / "kafka_localhost.keytab"
    with login_broker(
        tmp_path_factory.mktemp("kerberos"), **kerberos_settings(keytab, **settings)
    ) as made:
        create_topic(made.plain, "t")
        yield made


def context_of(realm, principal, service=SERVICE):
    """A client's side, with tickets of its own cache."""
    import gssapi

    path = realm.folder / (principal.replace("/", "_") + ".keytab")
    name = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
    cache = realm.folder / f"cache-{principal.replace('/', '_')}"
    own = gssapi.Credentials(
        name=name,
        usage="initiate",
        store={"client_keytab": f"FILE:{path}", "ccache": f"FILE:{cache}"},
    )
    target = gssapi.Name(f"{service}@{REALM}", gssapi.NameType.kerberos_principal)
    return gssapi.SecurityContext(name=target, creds=own, usage="initiate")


def exchange(conversation, context, *, layer=b"\1\0\0\0", identity=b""):
    """The broker's answer to the last token."""
    assert conversation.handshake("GSSAPI") == 0
    answer = conversation.token(context.step())
    if answer[0]:
        return answer
    assert not context.step(answer[2]) and context.complete
    offered = conversation.token(b"")
    assert offered[0] == 0 and context.unwrap(offered[2]).message == b"\1\0\0\0"
    return conversation.token(context.wrap(layer + identity, False).message)


@pytest.mark.parametrize(
    ("principal", "user"), [("alice", "alice"), ("Own.carol", "carol"), (SERVICE, "kafka")]
)
def test_sasl_kerberos_principal_to_local_rules(kerberos, realm, caplog, principal, user):
    """sasl.kerberos.principal.to.local.rules=RULE:[1:$1](Own...; the authorization id counts for
    nothing, as in Kafka."""
    caplog.set_level(0)
    with kerberos.connect() as c:
        found = exchange(c, context_of(realm, principal), identity=b"someone")
        assert found == (0, "", b"")
        assert c.is_served()
    assert f"logged in as 'User:{user}'" in caplog.text


def test_a_principal_without_a_short_name_is_refused(kerberos, realm):
    with kerberos.connect() as c:
        assert exchange(c, context_of(realm, "bob/admin")) == (FAILED, NO_NAME, b"")
        assert c.is_closed()


def test_a_ticket_for_another_service_is_refused(kerberos, realm):
    with kerberos.connect() as c:
        found = exchange(c, context_of(realm, "alice", "other/localhost"))
        assert found == (FAILED, INVALID, b"")
        assert c.is_closed()


@pytest.mark.parametrize("layer", [b"\2\0\0\0", b"\4\1\0\0", b"\0\0\0\0", b"\1\0\0", b""])
def test_a_security_layer_that_was_not_offered_is_refused(kerberos, realm, layer):
    with kerberos.connect() as c:
        assert exchange(c, context_of(realm, "alice"), layer=layer) == (FAILED, INVALID, b"")


def test_tokens_without_headers(kerberos, realm):
    context = context_of(realm, "alice")
    with kerberos.connect() as c:
        assert c.handshake("GSSAPI", version=0) == 0
        context.step(c.ask(context.step()))
        assert context.unwrap(c.ask(b"")).message == b"\1\0\0\0"
        assert c.ask(context.wrap(b"\1\0\0\0", False).message) == b""
        assert c.is_served()


def test_a_ticket_is_accepted_once(kerberos, realm):
    """A token that was seen on another connection is a replay."""
    token = context_of(realm, "alice").step()
    for code in (0, FAILED):
        with kerberos.connect() as c:
            assert c.handshake("GSSAPI") == 0
            assert c.token(token)[0] == code


def test_tokens_cut_at_each_byte_log_no_client_in(kerberos, realm):
    """The first token is the same one each time: what is refused is not remembered as used."""
    first = context_of(realm, "alice").step()
    for at in range(len(first)):
        with kerberos.connect() as c:
            assert c.handshake("GSSAPI") == 0
            assert c.token(first[:at])[0] == FAILED, at
            assert c.is_closed()
    at = 0
    while True:
        context = context_of(realm, "alice")
        with kerberos.connect() as c:
            assert c.handshake("GSSAPI") == 0
            context.step(c.token(context.step())[2])
            c.token(b"")
            last = context.wrap(b"\1\0\0\0", False).message
            answer = c.token(last[:at])
        if at == len(last):
            break
        assert answer[0] == FAILED, at
        at += 1
    assert answer[0] == 0 and at > 20
    with kerberos.connect() as c:
        assert c.handshake("GSSAPI") == 0
        assert c.token(first)[0] == 0


def test_tokens_with_a_changed_byte_log_no_client_in(kerberos, realm):
    size = len(context_of(realm, "alice").step())
    for at in [*range(0, 40), *range(40, size, 13)]:
        token = bytearray(context_of(realm, "alice").step())
        token[at] ^= 1
        with kerberos.connect() as c:
            assert c.handshake("GSSAPI") == 0
            answer = c.token(bytes(token))
            assert answer[0] == FAILED or not c.is_served(), at
    with kerberos.connect() as c:
        assert c.handshake("GSSAPI") == 0
        assert c.token(context_of(realm, "alice").step())[0] == 0
        assert c.token(b"x") == (FAILED, INVALID, b"")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"sasl.kerberos.service.name": None}, "sasl.kerberos.service.name must be"),
        ({"sasl.kerberos.service.name": "other"}, "sasl.kerberos.service.name must be"),
        ({"sasl.kerberos.principal.to.local.rules": "RULE:[1"}, "neither DEFAULT nor RULE"),
        ({"sasl.kerberos.ticket.renew.jitter": "0.1"}, "asks for SASL"),
        ({JAAS: f"{MODULE} required;"}, "useKeyTab"),
        ({JAAS: f"{MODULE}x required;"}, "the login module of GSSAPI"),
        ({JAAS: None}, "is not set"),
    ],
)
def test_a_setting_that_is_forgotten_or_wrong_stops_the_start(
    realm, tmp_path, monkeypatch, changed, said
):
    monkeypatch.delenv("KAFKA_OPTS", raising=False)
    keytab = realm.folder / "kafka_localhost.keytab"
    assert said in refusal(tmp_path, **kerberos_settings(keytab, **changed))


def test_a_keytab_that_is_missing_open_or_of_another_stops_the_start(realm, tmp_path):
    assert "cannot be read" in refusal(tmp_path, **kerberos_settings("/no/keytab"))
    alice = realm.folder / "alice.keytab"
    assert "no key of" in refusal(tmp_path, **kerberos_settings(alice))
    opened = tmp_path / "open.keytab"
    opened.write_bytes((realm.folder / "kafka_localhost.keytab").read_bytes())
    opened.chmod(0o644)
    assert "chmod 600" in refusal(tmp_path, **kerberos_settings(opened))


def test_without_the_package_the_broker_does_not_start(realm, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gssapi", None)
    keytab = realm.folder / "kafka_localhost.keytab"
    assert "pip install 'barnabas[kerberos]'" in refusal(tmp_path, **kerberos_settings(keytab))


def test_kafka_python(kerberos, realm):
    from kafka import KafkaAdminClient

    realm.log_in("alice")
    client = KafkaAdminClient(
        bootstrap_servers=kerberos.safe.replace("127.0.0.1", "localhost"),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="GSSAPI",
        sasl_kerberos_service_name="kafka",
    )
    assert client.describe_cluster()["brokers"]
    client.close()


def test_kcat(kerberos, realm):
    """librdkafka of Debian. The wheel of confluent-kafka (2.16.1) is built without GSSAPI: "No
    provider for SASL mechanism GSSAPI"."""
    if not any(Path("/usr/lib").glob("*/sasl2/libgssapiv2.so")):
        pytest.skip("no GSSAPI for libsasl2: apt-get install libsasl2-modules-gssapi-mit")
    address = kerberos.safe.replace("127.0.0.1", "localhost")
    options = [f"bootstrap.servers={address}", "security.protocol=SASL_PLAINTEXT"]
    options += ["sasl.mechanism=GSSAPI", "sasl.kerberos.service.name=kafka"]
    arguments = [part for option in options for part in ("-X", option)]
    for principal, is_good in (("alice", True), ("bob/admin", False)):
        name = principal.replace("/", "_")
        keytab = realm.folder / f"{name}.keytab"
        done = subprocess.run(
            ["kcat", "-L", "-m", "5", *arguments, "-X", f"sasl.kerberos.principal={principal}",
             "-X", f"sasl.kerberos.keytab={keytab}",
             "-X", f"sasl.kerberos.kinit.cmd=kinit -k -t {keytab} {principal}@{REALM}"],
            capture_output=True, text=True, timeout=60, check=False,
            env=os.environ | {"KRB5CCNAME": f"FILE:{realm.folder / name}.kcat"},
        )  # fmt: skip
        assert (done.returncode == 0) is is_good, done.stdout + done.stderr
        assert (' topic "t" ' in done.stdout) is is_good


@pytest.mark.java
def test_the_java_client(kerberos, realm, tmp_path):
    if reason := rival.missing(KAFKA):
        pytest.skip(reason)
    for principal, is_good in (("alice", True), ("bob/admin", False)):
        keytab = realm.folder / (principal.replace("/", "_") + ".keytab")
        properties = tmp_path / "client.properties"
        properties.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\n"
            "sasl.kerberos.service.name=kafka\n"
            f'sasl.jaas.config={MODULE} required useKeyTab=true storeKey=true keyTab="{keytab}"'
            f' principal="{principal}@{REALM}";\n'
            "request.timeout.ms=5000\ndefault.api.timeout.ms=8000\n"
        )
        command = rival.tool(KAFKA, "topics", tmp_path / "tool.log", heap=QUICK_HEAP)
        command[1:1] = [f"-Djava.security.krb5.conf={realm.environ['KRB5_CONFIG']}"]
        address = kerberos.safe.replace("127.0.0.1", "localhost")
        command += ["--bootstrap-server", address, "--command-config", str(properties), "--list"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode == 0) is is_good, done.stdout + done.stderr
        assert not is_good or "t" in done.stdout.split()
