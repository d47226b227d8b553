from collections.abc import Sequence

from barnabas.cext.network.transport import Transport

REQUESTED: int  # of TlsContext(client_auth=): a client may send a certificate
REQUIRED: int  # a client must send one

class TlsError(ValueError):
    """OpenSSL refused a key, a certificate or a setting; the text says why."""

class TlsContext(Transport):
    """The certificate, key and rules of one listener. A connection keeps those with which it began.

    `chain`: certificates in DER, the listener's own first, then those up to its authority; `key`:
    DER; `trusted`: DER of the certificates at which clients' chains must end; `client_auth`: 0,
    REQUESTED or REQUIRED; `versions`: TLSv1.2 and TLSv1.3, without one that has none of the
    `suites`; `suites`: OpenSSL's names, (): its defaults. Raises TlsError.
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
        """Exchanges certificate, key and rules with `other`: new connections use those of `other`."""

def library() -> str: ...
def reason_text(reason: int) -> str: ...
def subject(der: bytes) -> bytes: ...
def alternative_names(der: bytes) -> list[bytes]: ...
def key_of_pem(pem: bytes, password: bytes | None = None) -> bytes: ...
def openssl_name(suite: str) -> str | None: ...
