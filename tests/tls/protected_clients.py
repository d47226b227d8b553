"""How each client of tests/compat is given a certificate, a password or a token."""

import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from compat.java.tool_runner import ToolRunner
from compat.matrix import client_class
from compat.support import KAFKA, Sent
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from security.json_tokens import MODULE as OAUTH_MODULE
from security.json_tokens import signed
from security.login_broker import PASSWORD, PLAIN_MODULE, SCRAM_MODULE
from tls.authority import Authority, Issued
from tls.tls_broker import AUTHORITY, CLIENTS

from barnabas.client import Cluster, Producer, Reader
from barnabas.client.security_settings import parse_security

ALICE = CLIENTS.issue("CN=alice,O=Example", ())
REFUSED_S = 4  # for how long a client tries that will be refused


@dataclass(frozen=True)
class Protection:
    """What a client shows, and whom it trusts. `mechanism`: of SASL; None is TLS alone."""

    mechanism: str | None = None
    user: str = "alice"
    password: str = PASSWORD
    token: Callable[[], str] = signed
    own: Issued | None = None
    trusted: Authority = AUTHORITY
    is_tls: bool = True

    @property
    def protocol(self) -> str:
        if self.mechanism is None:
            return "SSL"
        return "SASL_SSL" if self.is_tls else "SASL_PLAINTEXT"

    @property
    def is_token(self) -> bool:
        return self.mechanism == "OAUTHBEARER"

    def but(self, **changed: Any) -> "Protection":
        return replace(self, **changed)

    def pem(self, folder: Path) -> tuple[str, str]:
        """Files of the certificates to trust, and of the client's own key and chain ("": none)."""
        trusted = folder / f"ca-{self.trusted.own.certificate.serial_number}.pem"
        trusted.write_text(self.trusted.pem)
        if self.own is None:
            return str(trusted), ""
        own = self.own.write(folder / f"own-{self.own.certificate.serial_number}.pem")
        return str(trusted), str(own)


PROTECTIONS = {
    "mtls": Protection(own=ALICE),
    "plain": Protection("PLAIN"),
    "scram-256": Protection("SCRAM-SHA-256"),
    "scram-512": Protection("SCRAM-SHA-512"),
    "oauth": Protection("OAUTHBEARER"),
}


def librdkafka(how: Protection, folder: Path) -> dict[str, Any]:
    trusted, own = how.pem(folder)
    made: dict[str, Any] = {"security.protocol": how.protocol, "ssl.ca.location": trusted}
    if own:
        made |= {"ssl.certificate.location": own, "ssl.key.location": own}
    if how.mechanism:
        made["sasl.mechanisms"] = how.mechanism
    if how.is_token:
        made["oauth_cb"] = lambda _: (how.token(), time.time() + 3600)
    elif how.mechanism:
        made |= {"sasl.username": how.user, "sasl.password": how.password}
    return made


def kafka_python(how: Protection, folder: Path) -> dict[str, Any]:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):
        def token(self) -> str:
            return how.token()

    trusted, own = how.pem(folder)
    made: dict[str, Any] = {"security_protocol": how.protocol, "ssl_cafile": trusted}
    made["bootstrap_timeout_ms"] = REFUSED_S * 1000
    if own:
        made["ssl_certfile"] = own
    if how.is_token:
        made["sasl_oauth_token_provider"] = Tokens()
    return made | _of_python(how)


def aiokafka(how: Protection, folder: Path) -> dict[str, Any]:
    from aiokafka.abc import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):
        async def token(self) -> str:
            return how.token()

    trusted, own = how.pem(folder)
    context = ssl.create_default_context(cafile=trusted)
    if own:
        context.load_cert_chain(own)
    made: dict[str, Any] = {"security_protocol": how.protocol}
    if how.is_tls:
        made["ssl_context"] = context
    if how.is_token:
        made["sasl_oauth_token_provider"] = Tokens()
    return made | _of_python(how)


def _of_python(how: Protection) -> dict[str, Any]:
    made: dict[str, Any] = {"sasl_mechanism": how.mechanism} if how.mechanism else {}
    if how.mechanism and not how.is_token:
        made |= {"sasl_plain_username": how.user, "sasl_plain_password": how.password}
    return made


def pkcs12_store(own: Issued, folder: Path) -> Path:
    path = folder / f"own-{own.certificate.serial_number}.p12"
    encryption = BestAvailableEncryption(b"sesame")
    path.write_bytes(
        serialize_key_and_certificates(b"own", own.key, own.certificate, None, encryption)
    )
    return path


def token_file(folder: Path) -> Path:
    """The file from which Java's and our clients read their token. A JVM must be permitted to read
    it when it starts (ALLOWED)."""
    return folder / "token"


ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed"


def java_options(folder: Path) -> str:
    """For JAVA_TOOL_OPTIONS."""
    file = token_file(folder)
    return f"-D{ALLOWED}.urls={file.as_uri()} -D{ALLOWED}.files={file}"


def java(how: Protection, folder: Path) -> dict[str, Any]:
    """The settings of Java's client; our own takes them, too. The client's key is in PKCS12: that
    of 2.7 takes no PEM key without a password."""
    trusted, _ = how.pem(folder)
    made: dict[str, Any] = {
        "security.protocol": how.protocol,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": trusted,
    }
    if how.own:
        made |= {"ssl.keystore.type": "PKCS12", "ssl.keystore.password": "sesame"}
        made["ssl.keystore.location"] = str(pkcs12_store(how.own, folder))
    if how.is_token:
        file = token_file(folder)
        file.write_text(how.token())
        handler = f"{OAUTH_MODULE.rpartition('.')[0]}.OAuthBearerLoginCallbackHandler"
        made |= {
            "sasl.mechanism": how.mechanism,
            "sasl.jaas.config": f"{OAUTH_MODULE} required;",
            "sasl.login.callback.handler.class": handler,
            "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
        }
    elif how.mechanism:
        module = PLAIN_MODULE if how.mechanism == "PLAIN" else SCRAM_MODULE
        login = f'{module} required username="{how.user}" password="{how.password}";'
        made |= {"sasl.mechanism": how.mechanism, "sasl.jaas.config": login}
    return made


def node(how: Protection, _folder: Path) -> dict[str, Any]:
    """Of kafkajs; platformatic has other names for two of them."""
    tls: dict[str, Any] = {"ca": [how.trusted.pem]}
    if how.own:
        tls |= {"cert": how.own.chain_pem, "key": how.own.key_pem()}
    made: dict[str, Any] = {"retry": {"retries": 2}, "connectionTimeout": 4000}
    if how.is_tls:
        made["ssl"] = tls
    if how.is_token:
        made["sasl"] = {"token": how.token()}
    elif how.mechanism:
        login = {"username": how.user, "password": how.password}
        made["sasl"] = {"mechanism": how.mechanism.lower()} | login
    return made


def platformatic(how: Protection, folder: Path) -> dict[str, Any]:
    made: dict[str, Any] = {"retries": 2}
    if how.is_tls:
        made["tls"] = node(how, folder)["ssl"]
    if how.is_token:
        made["sasl"] = {"mechanism": how.mechanism, "token": how.token()}
    elif how.mechanism:
        made["sasl"] = {"mechanism": how.mechanism, "username": how.user, "password": how.password}
    return made


class Ours:
    """barnabas' own client, with the interface of tests/compat/client.py."""

    def __init__(self, address: str, settings: Mapping[str, Any]) -> None:
        self._cluster = Cluster(address, security=parse_security(settings), timeout_s=REFUSED_S)

    def write(self, topic: str, values: list[str]) -> None:
        with Producer(self._cluster, topic) as producer:
            for value in values:
                producer.send(value.encode())

    def values(self, topic: str, count: int) -> list[str]:
        reader = Reader(self._cluster, topic, offsets={0: 0}, to_end=True)
        return [row.value.decode() for _, row in reader][:count]

    def close(self) -> None:
        self._cluster.close()


class Tools:
    """Kafka's console producer and consumer of 4.3.1, with the same interface. Each call is a tool
    of its own, in one JVM."""

    def __init__(self, address: str, settings: Mapping[str, Any], folder: Path) -> None:
        self._runner = ToolRunner(KAFKA, folder)
        self._log = folder / "tools.log"  # the runner's
        self._file = folder / "tools.properties"
        patient = {"max.block.ms": "20000", "delivery.timeout.ms": "20000", "linger.ms": "0"}
        patient["request.timeout.ms"] = "10000"
        lines = [f"{name}={value}\n" for name, value in (settings | patient).items()]
        self._file.write_text("".join(lines))
        self._address = address

    def _logged(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def _run(self, verb: str, *arguments: str, given: str = "") -> str:
        where = ("--bootstrap-server", self._address, "--command-config", str(self._file))
        logged = len(self._logged())
        ran = self._runner.run(verb, *where, *arguments, given=given)
        # The producer logs that a record was refused, and ends well.
        said = ran.err + self._logged()[logged:]
        assert ran.status == 0 and "ERROR" not in said and "xception" not in said, said
        return ran.out

    def write(self, topic: str, values: list[str]) -> None:
        self._run("console-producer", "--topic", topic, given="".join(f"{v}\n" for v in values))

    def values(self, topic: str, count: int) -> list[str]:
        of = ("--topic", topic, "--partition", "0", "--offset", "earliest")
        more = ("--timeout-ms", "20000", "--max-messages", str(count))
        return self._run("console-consumer", *of, *more).splitlines()

    def close(self) -> None:
        self._runner.close()


# The name in tests/compat -> its settings, and the mechanisms that it has of PROTECTIONS.
USERS = ("mtls", "plain", "scram-256", "scram-512")
FAMILIES: dict[str, tuple[Callable[[Protection, Path], dict[str, Any]], tuple[str, ...]]] = {
    "confluent_kafka": (librdkafka, (*USERS, "oauth")),
    # Its librdkafka 2.0 sends its part of the nonce twice, which Kafka 4.3.1 refuses, and we do.
    "kcat": (librdkafka, ("mtls", "plain")),
    "kafka_python": (kafka_python, (*USERS, "oauth")),
    "aiokafka": (aiokafka, (*USERS, "oauth")),
    "kafkajs": (node, (*USERS, "oauth")),
    "platformatic": (platformatic, (*USERS, "oauth")),
    "java_27": (java, USERS),
    "java_43": (java, (*USERS, "oauth")),  # 2.7 reads no tokens from files
    "java_44": (java, (*USERS, "oauth")),
    "tools": (java, (*USERS, "oauth")),
    "ours": (java, (*USERS, "oauth")),
}


class Writer:
    """A client of any family that writes and reads partition 0 of a topic."""

    def __init__(self, name: str, address: str, how: Protection, folder: Path) -> None:
        settings = FAMILIES[name][0](how, folder)
        self._is_node = name in ("kafkajs", "platformatic")
        if name == "ours":
            self._client: Any = Ours(address, settings)
        elif name == "tools":
            self._client = Tools(address, settings, folder)
        else:
            self._client = client_class(name)(address, settings)
        self._is_simple = name in ("ours", "tools")

    def write(self, topic: str, values: list[str]) -> None:
        if self._is_simple:
            self._client.write(topic, values)
        elif self._is_node:
            self._client.ask(do="produce", topic=topic, partition=0, values=values)
        else:
            offsets = self._client.produce(topic, 0, [Sent(v.encode()) for v in values])
            assert offsets is None or -1 not in offsets, "a record was refused"

    def values(self, topic: str, count: int) -> list[str]:
        if self._is_simple:
            return list(self._client.values(topic, count))
        if self._is_node:
            return list(self._client.committed(topic, count))
        return [row.value.decode() for row in self._client.read(topic, 0, 0, count)]

    def close(self) -> None:
        self._client.close()
