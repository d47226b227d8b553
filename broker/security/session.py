"""What a connection keeps of its login, as bytes beside its principal (docs/decisions/logins.md).

    mechanism NUL mechanism before NUL time of the last re-authentication NUL token NUL exchange

The second is empty but during a re-authentication; the third is monotonic, and 0 before the first
one; the fourth is 1 when the client has logged in with a delegation token, else 0; the fifth is
what the mechanism needs at the next token, and empty after the login. Before SaslHandshake there
are no bytes. Next: logins.py.
"""

from __future__ import annotations

from typing import NamedTuple

MIN_REAUTHENTICATION_NS = 1_000_000_000  # between two on one connection, as in Kafka's KafkaChannel


class Session(NamedTuple):
    """The state of the SASL login of one connection. `reauth_ns`: when the last re-authentication
    began, on the monotonic clock; 0: none yet."""

    mechanism: str
    before: str = ""
    reauth_ns: int = 0
    by_token: bool = False
    exchange: bytes = b""

    def __repr__(self) -> str:
        return f"<Session {self.mechanism}>"

    def encode(self) -> bytes:
        """Returns the bytes in the format above."""
        head = f"{self.mechanism}\0{self.before}\0{self.reauth_ns}\0{self.by_token:d}\0"
        return head.encode() + self.exchange

    @classmethod
    def decode(cls, data: bytes) -> Session:
        """Reads bytes of `encode`, which a connection keeps. Raises ValueError for others."""
        mechanism, before, reauth_ns, by_token, exchange = data.split(b"\0", 4)
        return cls(mechanism.decode(), before.decode(), int(reauth_ns), by_token == b"1", exchange)

    @property
    def is_reauth(self) -> bool:
        """Returns whether a re-authentication is in progress (KIP-368)."""
        return self.before != ""

    def may_reauthenticate(self, now_ns: int) -> bool:
        """Returns whether the client may begin a re-authentication: at most one in
        MIN_REAUTHENTICATION_NS. `now_ns`: the monotonic clock."""
        return not self.reauth_ns or now_ns - self.reauth_ns >= MIN_REAUTHENTICATION_NS
