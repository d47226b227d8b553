"""TLS and SASL by the settings of Kafka's Java client.

| setting | values |
|---|---|
| security.protocol | PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL |
| ssl.truststore.location or .certificates | whom to trust: a file of PEM, or PEM |
| ssl.keystore.location | the client's certificates and key: a file of PEM |
| ssl.keystore.certificate.chain, ssl.keystore.key | the same as PEM |
| ssl.key.password | of that key |
| ssl.endpoint.identification.algorithm | https; empty: any name of a broker will do |
| sasl.mechanism | PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 |
| sasl.jaas.config | a login module with username="..." password="..." |

Options of Spark's formats have the prefix `kafka.`, files of settings have none. Java's own key
stores (JKS, PKCS12) and other mechanisms (GSSAPI, OAUTHBEARER) are refused. No error holds a value
that may be secret.
"""

import re
from collections.abc import Mapping

from barnabas.client.failures import BadSetting
from barnabas.client.security import MECHANISMS, Sasl, Security, Tls

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
FAMILIES = ("security.", "ssl.", "sasl.")  # how the names of all of them begin
JAAS_PAIR = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")


def parse_security(given: Mapping[str, str], prefix: str = "") -> Security | None:
    """Of settings whose names begin with the prefix; None: nothing is asked for. Raises
    BadSetting."""
    return _Settings(given, prefix).security()


class _Settings:
    def __init__(self, given: Mapping[str, str], prefix: str) -> None:
        self._given, self._prefix = given, prefix

    def _get(self, name: str) -> str | None:
        return self._given.get(self._prefix + name)

    def _bad(self, text: str) -> BadSetting:
        return BadSetting(self._prefix + text)

    def security(self) -> Security | None:
        protocol = (self._get("security.protocol") or "PLAINTEXT").upper()
        if protocol not in PROTOCOLS:
            raise self._bad(f"security.protocol is one of {', '.join(PROTOCOLS)}: {protocol!r}")
        if protocol == "PLAINTEXT":
            return None
        return Security(
            tls=self._tls() if protocol.endswith("SSL") else None,
            sasl=self._sasl() if protocol.startswith("SASL") else None,
        )

    def _tls(self) -> Tls:
        for store in ("truststore", "keystore"):
            kind = (self._get(f"ssl.{store}.type") or "PEM").upper()
            location = self._get(f"ssl.{store}.location") or ""
            if kind != "PEM" or location.lower().endswith((".jks", ".p12", ".pfx")):
                shown = kind if kind != "PEM" else location
                raise self._bad(
                    f"ssl.{store}: {shown} is a key store of Java's; give a file of PEM (keytool"
                    " -exportcert -rfc writes one)"
                )
        chain = self._get("ssl.keystore.certificate.chain")
        trusted = self._get("ssl.truststore.certificates")
        return Tls(
            trusted=self._get("ssl.truststore.location") if trusted is None else trusted,
            own_chain=self._get("ssl.keystore.location") if chain is None else chain,
            own_key=self._get("ssl.keystore.key"),
            key_password=self._get("ssl.key.password"),
            check_host=self._get("ssl.endpoint.identification.algorithm") != "",
        )

    def _sasl(self) -> Sasl:
        mechanism = (self._get("sasl.mechanism") or "GSSAPI").upper()
        if mechanism not in MECHANISMS:
            raise self._bad(
                f"sasl.mechanism is one of {', '.join(MECHANISMS)} here, not {mechanism}"
            )
        pairs = {
            name: re.sub(r"\\(.)", r"\1", double or single) or bare
            for name, double, single, bare in JAAS_PAIR.findall(self._get("sasl.jaas.config") or "")
        }
        if "username" not in pairs or "password" not in pairs:
            raise self._bad('sasl.jaas.config needs username="..." and password="..."')
        return Sasl(mechanism, pairs["username"], pairs["password"])
