"""A broker with a SASL listener beside its plain one, and simple functions for logins."""

import base64
import contextlib
import hashlib
import hmac
import socket
import struct
from dataclasses import dataclass

from barnabas import Broker

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
PASSWORD = "in wonderland, 7 times"
SAFE = "listener.name.safe."
SETTINGS = {
    "listeners": "SAFE://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "listener.security.protocol.map": "SAFE:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "sasl.enabled.mechanisms": MECHANISMS,
    SAFE + "plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="{PASSWORD}";',
    SAFE + "scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    SAFE + "scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    "connection.failed.authentication.delay.ms": "0",
}
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}


@dataclass
class Login:
    """The broker, and the addresses of its listeners."""

    broker: Broker
    safe: str
    plain: str

    def connect(self) -> "Conversation":
        host, port = self.safe.split(":")
        return Conversation(socket.create_connection((host, int(port)), timeout=10))


@contextlib.contextmanager
def login_broker(tmp_path, **settings):
    """`settings` override SETTINGS; None removes one."""
    given = SETTINGS | {"log.dirs": str(tmp_path / "data")} | settings
    with Broker({name: value for name, value in given.items() if value is not None}) as broker:
        ports = {row.name: row.port for row in broker.node.listeners}
        yield Login(broker, f"127.0.0.1:{ports['SAFE']}", f"127.0.0.1:{ports.get('PLAINTEXT')}")


def frame(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def header(key: int, version: int, body: bytes = b"") -> bytes:
    return struct.pack(">hhihc", key, version, 7, 1, b"c") + body


class Conversation:
    """One connection. A response of `None` means that the broker has closed it."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection

    def __enter__(self) -> "Conversation":
        return self

    def __exit__(self, *_raised: object) -> None:
        self.socket.close()

    def ask(self, data: bytes) -> bytes | None:
        self.socket.sendall(frame(data))
        return self.answer()

    def answer(self) -> bytes | None:
        size = self._receive(4)
        return None if size is None else self._receive(struct.unpack(">i", size)[0])

    def _receive(self, count: int) -> bytes | None:
        data = b""
        while len(data) < count:
            try:
                more = self.socket.recv(count - len(data))
            except ConnectionResetError:
                return None
            if not more:
                return None
            data += more
        return data

    def is_closed(self) -> bool:
        return self._receive(1) is None

    def handshake(self, mechanism: str, version: int = 1) -> int | None:
        """The error code."""
        name = mechanism.encode()
        answer = self.ask(header(17, version, struct.pack(">h", len(name)) + name))
        return None if answer is None else struct.unpack(">h", answer[4:6])[0]

    def token(self, token: bytes) -> tuple[int, str, bytes] | None:
        """Error code, its text, and the broker's token."""
        answer = self.ask(header(36, 1, struct.pack(">i", len(token)) + token))
        if answer is None:
            return None
        code, length = struct.unpack(">hh", answer[4:8])
        at = 8 + max(length, 0)
        (size,) = struct.unpack(">i", answer[at : at + 4])
        return code, answer[8:at].decode(), answer[at + 4 : at + 4 + size]

    def is_served(self) -> bool:
        """Whether Metadata of no topics is answered."""
        return self.ask(header(3, 1, struct.pack(">i", 0))) is not None


def scram_final(mechanism, password, first_bare, server_first, gs2=b"n,,", nonce=None):
    """(client's final message, expected signature of the server). `nonce`: not the right one."""
    kind = HASHES[mechanism]
    fields = dict(part.split(b"=", 1) for part in server_first.split(b","))
    salted = hashlib.pbkdf2_hmac(
        kind, password.encode(), base64.b64decode(fields[b"s"]), int(fields[b"i"])
    )
    final = b"c=" + base64.b64encode(gs2) + b",r=" + (nonce or fields[b"r"])
    said = b",".join((first_bare, server_first, final))
    key = hmac.digest(salted, b"Client Key", kind)
    signature = hmac.digest(hashlib.new(kind, key).digest(), said, kind)
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    server = hmac.digest(hmac.digest(salted, b"Server Key", kind), said, kind)
    return final + b",p=" + base64.b64encode(proof), b"v=" + base64.b64encode(server)


def scram_login(conversation, mechanism, user, password):
    """(response to the first token, response to the last one, expected signature)."""
    assert conversation.handshake(mechanism) == 0
    bare = f"n={user},r=abc".encode()
    first = conversation.token(b"n,," + bare)
    if first is None or first[0]:
        return first, None, None
    final, expected = scram_final(mechanism, password, bare, first[2])
    return first, conversation.token(final), expected
