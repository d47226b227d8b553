from typing import Any

# The states of a login.
OPEN: int  # every request is answered
EXPIRING: int  # every request is answered until the login ends; then SaslHandshake only
NEEDED: int  # ApiVersions and SaslHandshake are answered
TOKENS: int  # SaslAuthenticate is answered
RAW_TOKENS: int  # each frame is a token: SaslAuthenticate version -1, `data` is the token
CERTIFICATE: int  # no request: `data` is the client's certificate, in DER
FAILED: int  # the connection closes when the answer is sent
LEGACY07: int  # each frame is a request of Kafka 0.7: API key -7, its type as the version

Readable = Any  # anything with the buffer protocol

class PendingRequest:
    """One request for Python. When it is freed without an answer, its connection closes."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    data: bytes  # the frame after its size
    body_at: int  # where the body begins in data
    listener: str
    listener_index: int
    connection_id: int
    received_ns: int  # monotonic
    gated: bool  # its native handler has not seen it: answer it, or call proceed()
    unmetered: bool  # the quotas of its client are not known: call quota_sensors.bind()
    native: bool  # unmetered, and a native handler answers it: then call proceed(again=True)
    login: int  # the login state of the connection: OPEN, NEEDED, ...
    principal: bytes  # of the last set_principal(); empty before: User:ANONYMOUS
    session: bytes  # of the last set_login(); empty before
    @property
    def peer(self) -> tuple[str, int]: ...
    @property
    def address(self) -> bytes: ...
    @property
    def caller(self) -> bytes: ...
    @property
    def questions(self) -> list[tuple[int, int, bytes]]: ...
    def reply(self, frame: Readable | list[Readable] | tuple[Readable, ...]) -> None: ...
    def silent(self) -> None: ...
    def leave(self) -> None:
        """Frees the handler for the next request; this or another thread answers the request."""
    def waits(self) -> None: ...
    def close(self) -> None: ...
    def muffle(self) -> None: ...
    def proceed(self, *, again: bool = False) -> None: ...
    def proceed_as(self, frame: Readable) -> None: ...
    def set_login(self, login: int, session: bytes, ends_ns: int = 0) -> None: ...
    def set_principal(self, principal: bytes) -> None: ...
    def throttle(self, throttle_ms: int) -> None: ...
    def report_close(self) -> None:
        """Makes Reactor.next_closed() return this connection's id when it closes, or if it has
        closed already. Call it before the answer: afterwards the connection may move to another
        thread, and would be reported as closed."""
