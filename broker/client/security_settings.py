"""TLS and SASL by the settings of Kafka's Java client.

| setting | values |
|---|---|
| security.protocol | PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL |
| ssl.truststore.location or .certificates | whom to trust: a store, or PEM |
| ssl.keystore.location | the client's certificates and key: a store |
| ssl.keystore.certificate.chain, ssl.keystore.key | the same as PEM |
| ssl.truststore.type, ssl.keystore.type | PEM, PKCS12, JKS; not set: by the name of the file |
| ssl.truststore.password, ssl.keystore.password | of a store that is not PEM |
| ssl.key.password | of the key |
| ssl.endpoint.identification.algorithm | https; empty: any name of a broker will do |
| sasl.mechanism | PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 |
| sasl.jaas.config | a login module with username="..." password="..." |

Options of Spark's formats have the prefix `kafka.`, files of settings have none. Stores of PKCS12
and JKS are read as the broker reads its own, when the settings are read, and are PEM from there on.
Other mechanisms (GSSAPI, OAUTHBEARER) are refused. No error holds a value that may be secret.
"""

import re
import ssl
from base64 import encodebytes
from collections.abc import Callable, Mapping
from typing import TypeVar

from barnabas.client.failures import BadSetting
from barnabas.client.security import MECHANISMS, Sasl, Security, Tls

Found = TypeVar("Found")
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
STORES = ("PEM", "PKCS12", "JKS")
FAMILIES = ("security.", "ssl.", "sasl.")  # how the names of all of them begin
JAAS_PAIR = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")


def parse_security(given: Mapping[str, str], prefix: str = "") -> Security | None:
    """Of settings whose names begin with the prefix; None: nothing is asked for. Raises
    BadSetting."""
    return _Settings(given, prefix).security()


class _Settings:
    """Also where barnabas.tls.stores looks for a client's stores."""

    def __init__(self, given: Mapping[str, str], prefix: str) -> None:
        self._given, self._prefix = given, prefix

    def text(self, base: str) -> str | None:
        return self._given.get(self.name_of(base))

    def name_of(self, base: str) -> str:
        return self._prefix + base

    def _bad(self, text: str) -> BadSetting:
        return BadSetting(self._prefix + text)

    def security(self) -> Security | None:
        protocol = (self.text("security.protocol") or "PLAINTEXT").upper()
        if protocol not in PROTOCOLS:
            raise self._bad(f"security.protocol is one of {', '.join(PROTOCOLS)}: {protocol!r}")
        if protocol == "PLAINTEXT":
            return None
        return Security(
            tls=self._tls() if protocol.endswith("SSL") else None,
            sasl=self._sasl() if protocol.startswith("SASL") else None,
        )

    def _tls(self) -> Tls:
        chain = self.text("ssl.keystore.certificate.chain")
        key, key_password = self.text("ssl.keystore.key"), self.text("ssl.key.password")
        trusted = self.text("ssl.truststore.certificates")
        if self._is_binary("truststore"):
            trusted = self._trusted_of_store()
        if self._is_binary("keystore"):
            chain, key = self._identity_of_store()
            key_password = None
        return Tls(
            trusted=self.text("ssl.truststore.location") if trusted is None else trusted,
            own_chain=self.text("ssl.keystore.location") if chain is None else chain,
            own_key=key,
            key_password=key_password,
            check_host=self.text("ssl.endpoint.identification.algorithm") != "",
        )

    def _is_binary(self, store: str) -> bool:
        """Whether a store is PKCS12 or JKS."""
        location = self.text(f"ssl.{store}.location") or ""
        is_named_so = location.lower().endswith((".jks", ".p12", ".pfx"))
        kind = self.text(f"ssl.{store}.type") or ("JKS" if is_named_so else "PEM")
        if kind.upper() not in STORES:
            raise self._bad(f"ssl.{store}.type is one of {', '.join(STORES)}: {kind!r}")
        return bool(location) and kind.upper() != "PEM"

    def _trusted_of_store(self) -> str:
        from barnabas.tls.stores import read_trusted

        return "".join(ssl.DER_cert_to_PEM_cert(one) for one in self._read(read_trusted))

    def _identity_of_store(self) -> tuple[str, str]:
        """The chain and the key."""
        from barnabas.tls.stores import read_identity

        found = self._read(read_identity)
        key = encodebytes(found.key).decode()
        chain = "".join(ssl.DER_cert_to_PEM_cert(one) for one in found.chain)
        return chain, f"-----BEGIN PRIVATE KEY-----\n{key}-----END PRIVATE KEY-----\n"

    def _read(self, read: Callable[["_Settings"], Found]) -> Found:
        from barnabas.config import ConfigError

        try:
            return read(self)
        except ConfigError as error:
            raise BadSetting(str(error)) from None

    def _sasl(self) -> Sasl:
        mechanism = (self.text("sasl.mechanism") or "GSSAPI").upper()
        if mechanism not in MECHANISMS:
            raise self._bad(
                f"sasl.mechanism is one of {', '.join(MECHANISMS)} here, not {mechanism}"
            )
        pairs = {
            name: re.sub(r"\\(.)", r"\1", double or single) or bare
            for name, double, single, bare in JAAS_PAIR.findall(self.text("sasl.jaas.config") or "")
        }
        if "username" not in pairs or "password" not in pairs:
            raise self._bad('sasl.jaas.config needs username="..." and password="..."')
        return Sasl(mechanism, pairs["username"], pairs["password"])
