from collections.abc import Sequence

from barnabas.cext.network.transport import Transport

REQUESTED: int  # of TlsContext(client_auth=): a client may show a certificate
REQUIRED: int  # it must

class TlsError(ValueError):
    """OpenSSL refused a key, a certificate or a setting; the text says why."""

class TlsContext(Transport):
    """The certificate, key and rules of one listener. Connections keep those that they began with.

    chain: DER, the listener's own first, then those that lead to its authority. key: DER.
    trusted: DER of the certificates that clients' chains must end at. client_auth: 0, REQUESTED
    or REQUIRED. versions: of TLSv1.2 and TLSv1.3, one that has none of `suites` left out. suites:
    OpenSSL's names, () for its defaults. Raises TlsError.
    """

    chain: tuple[bytes, ...]
    trusted: tuple[bytes, ...]

    def __init__(
        self,
        *,
        chain: tuple[bytes, ...],
        key: bytes,
        trusted: tuple[bytes, ...] = (),
        client_auth: int = 0,
        versions: Sequence[str] = ...,
        suites: tuple[str, ...] = (),
        name: bytes = b"",
    ) -> None: ...
    def replace(self, other: TlsContext) -> None:
        """Takes over everything of `other` for the connections to come; `other` gets what this
        one had."""

def library() -> str: ...
def reason_text(reason: int) -> str: ...
def subject(der: bytes) -> bytes: ...
def alternative_names(der: bytes) -> list[bytes]: ...
def key_of_pem(pem: bytes, password: bytes | None = None) -> bytes: ...
def openssl_name(suite: str) -> str | None: ...
