"""Logins of our own client beyond passwords: OAUTHBEARER, GSSAPI, delegation tokens, and logins
that are made anew. tests/client/test_security.py has those at Apache Kafka."""

import base64
import pickle
import select
import socket
import sys
import time
from types import SimpleNamespace

import pytest
from compat.support import Wire, create_topic
from security import key_distribution_center
from security.json_tokens import MODULE as OAUTH_MODULE
from security.json_tokens import KeyServer, oauth_settings, signed
from security.key_distribution_center import REALM
from security.login_broker import PASSWORD, SCRAM_MODULE, login_broker
from security.test_delegation_tokens import SETTINGS as TOKEN_SETTINGS
from security.test_delegation_tokens import create, log_in
from security.test_kerberos import MODULE as KERBEROS_MODULE
from security.test_kerberos import SERVICE, kerberos_settings
from security.test_kerberos import realm as realm
from security.users import alter, upsertion

from barnabas.client import BadSetting, CannotConnect, Cluster, Connection, Producer, Reader
from barnabas.client import connection as client_connection
from barnabas.client.failures import AuthenticationFailed, ConnectionLost
from barnabas.client.pipeline import Pipeline
from barnabas.client.security_settings import parse_security
from barnabas.errors import SaslAuthenticationFailed
from barnabas.wire import request

HOUR_MS = 3_600_000
SECRET = "not for the log"
URL = "sasl.oauthbearer.token.endpoint.url"
with_kerberos = pytest.mark.skipif(
    key_distribution_center.missing() is not None, reason=str(key_distribution_center.missing())
)


def reached(address, settings):
    """Logs in on a new connection."""
    host, port = address.split(":")
    Connection(host, int(port), security=parse_security(settings)).close()


# -- OAUTHBEARER


@pytest.fixture(scope="module")
def oauth(tmp_path_factory):
    folder = tmp_path_factory.mktemp("oauth")
    with login_broker(folder, **oauth_settings(folder)) as made:
        yield made


@pytest.fixture
def provider(tmp_path):
    """A token endpoint, which gives a good token at first."""
    with KeyServer().running(tmp_path) as made:
        made.answer = (200, {}, b'{"access_token":"%s"}' % signed().encode())
        yield made


def of_file(path):
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{OAUTH_MODULE} required;",
        URL: path.as_uri(),
    }


def of_endpoint(provider, folder, options=""):
    options += f' ssl.truststore.type="PEM" ssl.truststore.location="{folder / "ca.pem"}"'
    return of_file(folder) | {
        URL: provider.url,
        "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer.secured"
        ".OAuthBearerLoginCallbackHandler",
        "sasl.jaas.config": f'{OAUTH_MODULE} required clientId="news writer"'
        f' clientSecret="{SECRET}" scope="read all" {options};',
    }


def test_a_token_of_a_file_is_read_for_each_login(oauth, tmp_path, caplog):
    caplog.set_level(0)
    file = tmp_path / "token"
    settings = of_file(file)
    for user in ("alice", "carol"):
        file.write_text(f"{signed(sub=user)}\n")
        reached(oauth.safe, settings)
        assert f"logged in as 'User:{user}'" in caplog.text
    expired = signed(iat=int(time.time()) - 999, exp=int(time.time()) - 99)
    file.write_text(expired)
    with pytest.raises(SaslAuthenticationFailed, match="the user of file:") as raised:
        reached(oauth.safe, settings)
    assert expired not in str(raised.value) + caplog.text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read: No such file"),
        ("x" * 65_537, "has more than 65536 bytes"),
        ("opaque", "not a JSON Web Token with an expiry time"),
        ("e30.e30.e30", "not a JSON Web Token with an expiry time"),
        ("a.b\x01auth=Bearer c.d", "not a JSON Web Token with an expiry time"),
    ],
)
def test_what_is_no_token_is_not_sent(oauth, tmp_path, text, said):
    file = tmp_path / "token"
    if text is not None:
        file.write_text(text)
    with pytest.raises(AuthenticationFailed, match=said) as raised:
        reached(oauth.safe, of_file(file))
    assert text is None or text not in str(raised.value)


def test_a_token_of_an_endpoint_is_kept_until_it_is_nearly_over(
    oauth, provider, tmp_path, monkeypatch, caplog
):
    """It is asked for by client id and secret, and neither it nor they are logged."""
    caplog.set_level(0)
    security = parse_security(of_endpoint(provider, tmp_path))
    with Cluster(oauth.safe, security=security) as cluster:
        for _ in range(3):
            cluster.close()
            cluster.refresh([])
    [(headers, form)] = provider.posted
    name = base64.b64encode(f"news writer:{SECRET}".encode()).decode()
    assert headers["Authorization"] == f"Basic {name}"
    assert form == "grant_type=client_credentials&scope=read+all"
    copied = pickle.loads(pickle.dumps(security))  # noqa: S301 - as to Spark's tasks
    for sent in (security, copied):
        assert sent == security and SECRET not in repr(sent)
        with Cluster(oauth.safe, security=sent) as cluster:
            cluster.refresh([])
    assert len(provider.posted) == 1
    now_s = time.time() + 0.81 * 3600
    monkeypatch.setattr("barnabas.client.oauth.time.time", lambda: now_s)
    with Cluster(oauth.safe, security=security) as cluster:
        cluster.refresh([])
    assert len(provider.posted) == 2
    token = provider.answer[2].decode().split('"')[3]
    assert SECRET not in caplog.text and token not in caplog.text and token not in repr(security)


def test_a_token_that_a_broker_refuses_is_not_kept(oauth, provider, tmp_path):
    security = parse_security(of_endpoint(provider, tmp_path))
    good, other = provider.answer, signed("other").encode()
    provider.answer = (200, {}, b'{"id_token":"%s"}' % other)
    with pytest.raises(SaslAuthenticationFailed, match="client news writer at"):
        Cluster(oauth.safe, security=security).refresh([])
    provider.answer = good
    with Cluster(oauth.safe, security=security) as cluster:
        cluster.refresh([])
    assert len(provider.posted) == 2


def test_client_id_and_secret_may_be_settings_and_are_encoded_when_asked(oauth, provider, tmp_path):
    settings = of_endpoint(provider, tmp_path, 'extension_tier="gold"') | {
        "sasl.oauthbearer.client.credentials.client.id": "a:b",
        "sasl.oauthbearer.client.credentials.client.secret": "ü&",
        "sasl.oauthbearer.scope": "write",
        "sasl.oauthbearer.header.urlencode": "true",
    }
    reached(oauth.safe, settings)
    [(headers, form)] = provider.posted
    assert base64.b64decode(headers["Authorization"].removeprefix("Basic ")) == b"a%3Ab:%C3%BC%26"
    assert form == "grant_type=client_credentials&scope=write"


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        ((401, {}, b"{}"), AuthenticationFailed, "for client news writer: HTTP 401"),
        ((302, {"Location": "https://localhost/"}, b""), AuthenticationFailed, "HTTP 302"),
        ((503, {}, b""), CannotConnect, "HTTP 503"),
        ((200, {}, b"<html>"), AuthenticationFailed, "its answer is not JSON with access_token"),
        ((200, {}, b"[]"), AuthenticationFailed, "its answer is not JSON with access_token"),
        ((200, {}, b"{}"), AuthenticationFailed, "its answer is not JSON with access_token"),
        ((200, {}, b" " * 70_000), AuthenticationFailed, "its answer is not JSON with"),
    ],
)
def test_an_endpoint_that_gives_no_token(oauth, provider, tmp_path, answer, kind, said):
    provider.answer = answer
    with pytest.raises(kind, match=f"^no token from {provider.url}.*{said}") as raised:
        reached(oauth.safe, of_endpoint(provider, tmp_path))
    assert type(raised.value) is kind and SECRET not in str(raised.value)


def test_an_endpoint_that_is_not_trusted_gets_no_secret(oauth, provider, tmp_path):
    settings = of_endpoint(provider, tmp_path)
    jaas = settings["sasl.jaas.config"].replace("ssl.truststore", "other")
    with pytest.raises(CannotConnect, match="CERTIFICATE_VERIFY_FAILED"):
        reached(oauth.safe, settings | {"sasl.jaas.config": jaas})
    assert provider.posted == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({URL: None}, f"{URL} is needed"),
        (
            {URL: "http://localhost/token"},
            f"{URL}: http://localhost/token is not an https: or file:",
        ),
        ({"sasl.jaas.config": f"{OAUTH_MODULE} required;"}, "sasl.jaas.config needs clientId="),
        ({"sasl.jaas.config": f'{OAUTH_MODULE} required a="{SECRET}"'}, "does not end with a semi"),
        ({"sasl.jaas.config": f"{OAUTH_MODULE} required; y required;"}, "names several login"),
        ({"sasl.jaas.config": None}, "is not set, and no JAAS file .* has a section KafkaClient"),
        (
            {"sasl.login.callback.handler.class": "com.example.Own"},
            "sasl.login.callback.handler.class is OAuthBearerLoginCallbackHandler here",
        ),
        (
            {"sasl.oauthbearer.jwt.retriever.class": "a.b.JwtBearerJwtRetriever"},
            "sasl.oauthbearer.jwt.retriever.class is DefaultJwtRetriever or .* not a.b.Jwt",
        ),
    ],
)
def test_settings_of_tokens_that_are_missing_or_wrong(tmp_path, monkeypatch, wrong, said):
    monkeypatch.delenv("KAFKA_OPTS", raising=False)

    class Provider:
        url = "https://localhost/token"

    settings = of_endpoint(Provider, tmp_path) | wrong
    with pytest.raises(BadSetting, match=said) as raised:
        parse_security({name: text for name, text in settings.items() if text is not None})
    assert SECRET not in str(raised.value)


# -- GSSAPI


@pytest.fixture(scope="module")
def kerberos(realm, tmp_path_factory):
    settings = {"advertised.listeners": "SAFE://localhost:0,PLAINTEXT://127.0.0.1:0"}
    keytab = realm.folder / "kafka_localhost.keytab"
    folder = tmp_path_factory.mktemp("kerberos")
    with login_broker(folder, **kerberos_settings(keytab, **settings)) as made:
        create_topic(made.plain, "t")
        yield made


def of_realm(options, **changed):
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.kerberos.service.name": SERVICE.partition("/")[0],
        "sasl.jaas.config": f"{KERBEROS_MODULE} required {options};",
    } | changed


def by_key(realm, user="alice"):
    return f'useKeyTab=true keyTab="{realm.folder / user}.keytab" principal="{user}@{REALM}"'


@with_kerberos
def test_a_key_of_a_keytab_logs_in(kerberos, realm, monkeypatch, caplog):
    """Records are written and read; tickets of others in the cache of this user do not count."""
    caplog.set_level(0)
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{realm.folder}/none")
    address = kerberos.safe.replace("127.0.0.1", "localhost")
    security = parse_security(of_realm(by_key(realm)))
    assert pickle.loads(pickle.dumps(security)) == security  # noqa: S301 - as to Spark's tasks
    with Cluster(address, security=security) as cluster:
        with Producer(cluster, "t") as producer:
            producer.send(b"hello")
        found = [row.value for _, row in Reader(cluster, "t", offsets={0: 0}, to_end=True)]
    assert found == [b"hello"] and "logged in as 'User:alice'" in caplog.text


@with_kerberos
def test_the_tickets_of_a_cache_log_in(kerberos, realm, monkeypatch):
    address = kerberos.safe.replace("127.0.0.1", "localhost")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{realm.folder}/of alice")
    with pytest.raises(AuthenticationFailed, match="the principal of the tickets at kafka/local"):
        reached(address, of_realm("useTicketCache=true"))
    realm.log_in("alice")
    cache = realm.environ["KRB5CCNAME"]
    reached(address, of_realm(f'useTicketCache=true ticketCache="{cache}"'))
    monkeypatch.setenv("KRB5CCNAME", cache)
    reached(address, of_realm("useTicketCache=true serviceName=kafka"))


@with_kerberos
@pytest.mark.parametrize(
    ("options", "service", "said"),
    [
        ("useTicketCache=true", "other", "the principal of the tickets at localhost:.* invalid"),
        ("useTicketCache=true", "nobody", "the principal of the tickets at nobody/localhost: "),
        ('useKeyTab=true keyTab="/no/keytab" principal="alice"', "kafka", "principal alice at"),
    ],
)
def test_without_a_ticket_for_the_broker_there_is_no_login(kerberos, realm, options, service, said):
    realm.log_in("alice")
    address = kerberos.safe.replace("127.0.0.1", "localhost")
    settings = of_realm(options, **{"sasl.kerberos.service.name": service})
    with pytest.raises((AuthenticationFailed, SaslAuthenticationFailed), match=said):
        reached(address, settings)


@pytest.mark.parametrize(
    ("options", "service", "said"),
    [
        ("useTicketCache=true", "", "sasl.kerberos.service.name is needed"),
        ("", "kafka", "sasl.jaas.config needs useKeyTab=true"),
        ("useKeyTab=true principal=alice", "kafka", "sasl.jaas.config needs useKeyTab=true"),
    ],
)
@with_kerberos
def test_settings_of_kerberos_that_are_missing(options, service, said):
    with pytest.raises(BadSetting, match=said):
        parse_security(of_realm(options, **{"sasl.kerberos.service.name": service}))


def test_without_the_package_of_kerberos_a_client_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(BadSetting, match=r"pip install 'barnabas\[kerberos\]'"):
        parse_security(of_realm("useTicketCache=true"))


# -- delegation tokens


def test_a_delegation_token_logs_in_as_its_owner(tmp_path, caplog):
    caplog.set_level(0)
    with login_broker(tmp_path, **TOKEN_SETTINGS) as login:
        with login.connect() as c:
            log_in(c)
            made = create(c)
        hmac = base64.b64encode(bytes(made.hmac)).decode()

        def settings(password, more="tokenauth=true"):
            line = (
                f'{SCRAM_MODULE} required username="{made.tokenId}" password="{password}" {more};'
            )
            return {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": line,
            }

        reached(login.safe, settings(hmac))
        assert "logged in as 'User:alice'" in caplog.text
        for wrong in (settings(hmac[::-1]), settings(hmac, "tokenauth=false")):
            with pytest.raises(SaslAuthenticationFailed) as raised:
                reached(login.safe, wrong)
            said = f"delegation token {made.tokenId} at" if "=true" in str(wrong) else "user "
            assert said in str(raised.value) and hmac not in str(raised.value) + caplog.text


# -- logins that end


@pytest.fixture
def hourly(tmp_path):
    """Logins end after an hour, by the broker's clock."""
    settings = {"connections.max.reauth.ms": str(HOUR_MS), "connections.max.idle.ms": "-1"}
    with login_broker(tmp_path, **settings) as made:
        create_topic(made.plain, "t")
        with Wire(made.plain) as wire:
            alter(wire, upsertions=[upsertion("bob", PASSWORD)])
        yield made


def of_bob(password=PASSWORD):
    line = f'{SCRAM_MODULE} required username="bob" password="{password}";'
    return parse_security(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": line,
        }
    )


@pytest.fixture
def later(hourly, monkeypatch):
    """Moves the clocks of the broker and of the client, by more than a login lasts."""
    passed_s = [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed_s[0])
    monkeypatch.setattr(client_connection, "time", clock)

    def move(ms=HOUR_MS + 1, client=True, broker=True):
        if client:
            passed_s[0] += ms / 1000
        if broker:
            hourly.broker.node.clock.move(ms)

    return move


@pytest.fixture
def opened(monkeypatch):
    """The connections that were made."""
    found = []
    connect = socket.create_connection

    def counted(*arguments, **more):
        found.append(arguments)
        return connect(*arguments, **more)

    monkeypatch.setattr(client_connection.socket, "create_connection", counted)
    return found


def test_a_login_is_made_anew_before_the_next_request(hourly, later):
    host, port = hourly.safe.split(":")
    ask = (3, request(3).cls(topics=[]))
    connection = Connection(host, int(port), security=of_bob())
    for _ in range(3):
        later()
        connection.call(*ask)
        assert not connection.is_login_due
    hourly.broker.node.clock.move(HOUR_MS + 1)  # the client does not know
    with pytest.raises(ConnectionLost):
        connection.call(*ask)


def test_a_login_is_made_anew_a_little_before_it_ends(hourly, later):
    host, port = hourly.safe.split(":")
    connection = Connection(host, int(port), security=of_bob())
    later(int(0.84 * HOUR_MS))
    assert not connection.is_login_due
    later(int(0.12 * HOUR_MS))
    assert connection.is_login_due
    connection.close()


def test_a_producer_logs_in_anew_between_its_requests(hourly, later, opened):
    """Batches of five hours go over one connection, and one for metadata, in their order."""
    with Cluster(hourly.safe, security=of_bob()) as cluster:
        with Producer(cluster, "t") as producer:
            producer.send(b"0")
            producer.flush()
            count = len(opened)
            for i in range(1, 5):
                later()
                producer.send(b"%d" % i)
                producer.flush()
            assert len(opened) == count
        later()
        found = [row.value for _, row in Reader(cluster, "t", offsets={0: 0}, to_end=True)]
    assert found == [b"%d" % i for i in range(5)]


def test_requests_in_flight_are_answered_before_a_login_is_made_anew(hourly, later):
    """And no request goes out meanwhile."""
    host, port = hourly.safe.split(":")
    pipeline = Pipeline(Connection(host, int(port), security=of_bob()), in_flight_max=5)
    body = request(3).cls(topics=[])

    def answered(count):
        found = []
        while len(found) < count:
            select.select([pipeline], [], [], 10)
            found += pipeline.pump()
        return len(found)

    for _ in range(2):
        pipeline.send(3, 1, body, None, counted_from_ns=0)
    later(broker=False)  # it may not have read them yet, and would close the connection
    assert not pipeline.is_free and len(pipeline.sent) == 2
    assert answered(2) == 2 and pipeline.is_free and pipeline.connection.is_login_due
    later(client=False)
    pipeline.send(3, 1, body, None, counted_from_ns=0)
    assert answered(1) == 1 and not pipeline.connection.is_login_due
    pipeline.close()


def test_a_producer_whose_password_has_changed_fails_at_its_next_login(hourly, later):
    with Cluster(hourly.safe, security=of_bob()) as cluster, Producer(cluster, "t") as producer:
        producer.send(b"before")
        producer.flush()
        with Wire(hourly.plain) as wire:
            alter(wire, upsertions=[upsertion("bob", "another password")])
        later()
        producer.send(b"after")
        with pytest.raises(AuthenticationFailed, match="user bob at"):
            producer.flush()
