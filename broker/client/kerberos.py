"""SASL GSSAPI of a client (RFC 4752): a ticket of Kerberos, by the package gssapi.

    client    tokens of Kerberos, until both sides have authenticated; then an empty message
    broker    4 bytes, wrapped: the security layers that it offers
    client    4 bytes, wrapped: no security layer, because TLS protects the connection

The ticket comes from a cache, or libkrb5 gets it with the key of a keytab, and again when it has
expired. Kafka: SaslClientAuthenticator with Java's GssKrb5Client and Krb5LoginModule.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from barnabas.client.failures import AuthenticationFailed, BadSetting

NO_LAYER = b"\1\0\0\0"


@dataclass(frozen=True, slots=True)
class Kerberos:
    """A login with Kerberos. `service`: the first part of the brokers' principals; the second part
    is the host name of the connection. Without a keytab it uses a ticket cache: `cache`, or that of
    KRB5CCNAME."""

    mechanism: ClassVar[str] = "GSSAPI"
    service: str
    principal: str | None = None
    keytab: str | None = None
    cache: str | None = None

    @property
    def who(self) -> str:
        return f"principal {self.principal}" if self.principal else "the principal of the tickets"

    def authenticate(self, exchange: Callable[[bytes], bytes], host: str) -> None:
        """Logs in with a Kerberos ticket for `SERVICE/host` (RFC 4752), without a security layer.
        `exchange` sends a token and returns the broker's. Raises AuthenticationFailed,
        BadSetting."""
        gssapi = gssapi_package()
        try:
            context = self._context(gssapi, host)
            answer = exchange(context.step())
            while not context.complete:
                answer = exchange(context.step(answer) or b"")
            offered = context.unwrap(answer).message
            if len(offered) != 4 or not offered[0] & NO_LAYER[0]:
                raise AuthenticationFailed(f"{self.service}/{host} demands a security layer")
            exchange(context.wrap(NO_LAYER, False).message)
        except gssapi.exceptions.GSSError as error:
            raise AuthenticationFailed(f"{self.who} at {self.service}/{host}: {error}") from None

    def _context(self, gssapi: Any, host: str) -> Any:
        kinds, kerberos = gssapi.NameType, gssapi.MechType.kerberos
        store: dict[str, str] = {}
        if self.keytab:
            # Tickets are in the memory of this process; all logins with this key share them.
            tickets = f"MEMORY:barnabas {self.principal} {self.keytab}"
            store = {"client_keytab": f"FILE:{self.keytab}", "ccache": tickets}
        elif self.cache:
            store = {"ccache": self.cache if ":" in self.cache else f"FILE:{self.cache}"}
        own = gssapi.Credentials(
            name=gssapi.Name(self.principal, kinds.kerberos_principal) if self.principal else None,
            usage="initiate",
            mechs=[kerberos],
            store=store or None,
        )
        target = gssapi.Name(f"{self.service}@{host}", kinds.hostbased_service)
        return gssapi.SecurityContext(name=target, creds=own, usage="initiate", mech=kerberos)


def gssapi_package() -> Any:
    """Imports and returns the package gssapi. Raises BadSetting when it is not installed."""
    try:
        import gssapi
    except (ImportError, OSError):  # OSError: without the libraries of Kerberos
        raise BadSetting(
            "GSSAPI needs the package gssapi, and libkrb5: pip install 'barnabas[kerberos]'"
        ) from None
    return gssapi
