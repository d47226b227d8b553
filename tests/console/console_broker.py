"""A broker with a console, and a small browser: cookies, forms, and the text of pages."""

import contextlib
import html
import http.client
import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlencode

from barnabas import Broker
from barnabas.client import Cluster
from barnabas.client.producer import Producer
from barnabas.client.security import Sasl, Security
from barnabas.security.access_rules import AccessControlEntry, ResourcePattern
from barnabas.security.acl_codes import ALLOW, LITERAL

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
PASSWORD = "in wonderland, 7 times"
ADMIN, ALICE = "admin", "alice"
SAFE = "listener.name.safe."
RULED = {
    "listeners": "SAFE://127.0.0.1:0",
    "listener.security.protocol.map": "SAFE:SASL_PLAINTEXT",
    "inter.broker.listener.name": "SAFE",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    SAFE + "plain.sasl.jaas.config": f'{PLAIN_MODULE} required username="admin"'
    f' password="{PASSWORD}" user_admin="{PASSWORD}" user_alice="{PASSWORD}";',
    SAFE + "scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "connection.failed.authentication.delay.ms": "0",
}
FOR_TESTS = {
    "console.port": "0",
    "num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


@dataclass
class Reply:
    status: int
    headers: http.client.HTTPMessage
    text: str

    @property
    def words(self) -> str:
        """The page as a reader sees it."""
        return html.unescape(re.sub(r"<[^>]*>", "", self.text))

    @property
    def token(self) -> str:
        found = re.search(r'name="token" value="([^"]+)"', self.text)
        assert found is not None, self.text
        return found.group(1)


class Browser:
    """Keeps cookies, and follows no redirect."""

    def __init__(self, address: str, context: ssl.SSLContext | None = None) -> None:
        self.scheme, _, self.host = address.partition("://")
        self.cookies: dict[str, str] = {}
        self._context = context

    def get(self, path: str, **headers: str) -> Reply:
        return self._ask("GET", path, None, headers)

    def post(self, path: str, form: dict[str, str], **headers: str) -> Reply:
        given = {
            "Origin": f"{self.scheme}://{self.host}",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        return self._ask("POST", path, urlencode(form), given | headers)

    def log_in(self, user: str = ADMIN, password: str = PASSWORD) -> Reply:
        token = self.get("/login").token
        return self.post("/login", {"token": token, "user": user, "password": password})

    def _ask(self, method: str, path: str, body: str | None, headers: dict[str, str]) -> Reply:
        if self.scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                self.host, timeout=20, context=self._context
            )
        else:
            connection = http.client.HTTPConnection(self.host, timeout=20)
        try:
            cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
            given = {"Host": self.host} | ({"Cookie": cookies} if cookies else {}) | headers
            given = {name: value for name, value in given.items() if value is not None}
            connection.putrequest(method, path, skip_host=True)
            for name, value in given.items():
                connection.putheader(name, value)
            data = (body or "").encode()
            if method == "POST":
                connection.putheader("Content-Length", str(len(data)))
            connection.endheaders(data if method == "POST" else None)
            answer = connection.getresponse()
            for line in answer.headers.get_all("Set-Cookie", []):
                name, _, value = line.partition(";")[0].partition("=")
                self.cookies[name] = value
            return Reply(answer.status, answer.headers, answer.read().decode())
        finally:
            connection.close()


class Watched:
    """A running broker with its console."""

    def __init__(self, broker: Broker, security: Security | None) -> None:
        self.broker, self._security = broker, security

    @property
    def console(self):
        found = self.broker.node.console
        assert found is not None
        return found

    def browser(self, context: ssl.SSLContext | None = None) -> Browser:
        return Browser(self.console.address, context)

    def logged_in(self, user: str = ADMIN) -> Browser:
        browser = self.browser()
        assert browser.log_in(user).status == 303
        return browser

    @contextlib.contextmanager
    def client(self) -> Iterator[Cluster]:
        row = self.broker.node.listening[0]
        with Cluster(f"{row.host}:{row.port}", security=self._security) as cluster:
            yield cluster

    def produce(self, topic: str, *records: tuple[bytes | None, bytes | None]) -> None:
        with self.client() as cluster:
            cluster.topic(topic, create=True)
            with Producer(cluster, topic) as producer:
                for key, value in records:
                    producer.send(value, key=key)

    @contextlib.contextmanager
    def rights(self, *rights: tuple[int, int, str], who: str = ALICE) -> Iterator[None]:
        """(operation, resource type, name) each, until the end."""
        entries: dict[ResourcePattern, set[AccessControlEntry]] = {}
        for operation, kind, name in rights:
            entry = AccessControlEntry(f"User:{who}", "*", operation, ALLOW)
            entries.setdefault(ResourcePattern(kind, name, LITERAL), set()).add(entry)
        authorizer = self.broker.node.opened.authorizer
        assert authorizer is not None
        assert not any(authorizer.store.change(entries, {}).values())
        try:
            yield
        finally:
            authorizer.store.change({}, entries)


@contextlib.contextmanager
def open_broker(**settings: str) -> Iterator[Watched]:
    """A broker without logins."""
    with Broker(FOR_TESTS | settings) as broker:
        yield Watched(broker, None)


@contextlib.contextmanager
def ruled_broker(**settings: str) -> Iterator[Watched]:
    """A broker with users and access rules."""
    with Broker(FOR_TESTS | RULED | settings) as broker:
        yield Watched(broker, Security(sasl=Sasl("PLAIN", ADMIN, PASSWORD)))
