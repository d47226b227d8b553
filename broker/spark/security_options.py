"""TLS and SASL of the `kafka.*` options, under the Java client's names.

| option | values |
|---|---|
| kafka.security.protocol | PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL |
| kafka.ssl.truststore.location or .certificates | whom to trust: a file of PEM, or PEM |
| kafka.ssl.keystore.location | the client's certificates and key: a file of PEM |
| kafka.ssl.keystore.certificate.chain, kafka.ssl.keystore.key | the same as PEM |
| kafka.ssl.key.password | of that key |
| kafka.ssl.endpoint.identification.algorithm | https; empty: any name of a broker will do |
| kafka.sasl.mechanism | PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 |
| kafka.sasl.jaas.config | a login module with username="..." password="..." |

Java's own key stores (JKS, PKCS12) and other mechanisms (GSSAPI, OAUTHBEARER) are refused.
"""

import re
from collections.abc import Mapping

from barnabas.client.security import MECHANISMS, Sasl, Security, Tls
from barnabas.spark.bad_option import BadOption

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
JAAS_PAIR = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")


def parse_security(low: Mapping[str, str]) -> Security | None:
    """Of options whose names are in lower case; None: nothing is asked for. Raises BadOption."""
    protocol = low.get("kafka.security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise BadOption(f"kafka.security.protocol is one of {', '.join(PROTOCOLS)}: {protocol!r}")
    if protocol == "PLAINTEXT":
        return None
    return Security(
        tls=_tls(low) if protocol.endswith("SSL") else None,
        sasl=_sasl(low) if protocol.startswith("SASL") else None,
    )


def _tls(low: Mapping[str, str]) -> Tls:
    for store in ("truststore", "keystore"):
        kind = low.get(f"kafka.ssl.{store}.type", "PEM").upper()
        location = low.get(f"kafka.ssl.{store}.location", "")
        if kind != "PEM" or location.lower().endswith((".jks", ".p12", ".pfx")):
            given = kind if kind != "PEM" else location
            raise BadOption(
                f"kafka.ssl.{store}: {given} is a key store of Java's; give a file"
                " of PEM (keytool -exportcert -rfc writes one)"
            )
    chain = low.get("kafka.ssl.keystore.certificate.chain", low.get("kafka.ssl.keystore.location"))
    return Tls(
        trusted=low.get(
            "kafka.ssl.truststore.certificates", low.get("kafka.ssl.truststore.location")
        ),
        own_chain=chain,
        own_key=low.get("kafka.ssl.keystore.key"),
        key_password=low.get("kafka.ssl.key.password"),
        check_host=low.get("kafka.ssl.endpoint.identification.algorithm", "https") != "",
    )


def _sasl(low: Mapping[str, str]) -> Sasl:
    mechanism = low.get("kafka.sasl.mechanism", "GSSAPI").upper()
    if mechanism not in MECHANISMS:
        raise BadOption(
            f"kafka.sasl.mechanism is one of {', '.join(MECHANISMS)} here, not {mechanism}"
        )
    jaas = low.get("kafka.sasl.jaas.config", "")
    pairs = {
        name: re.sub(r"\\(.)", r"\1", double or single) or bare
        for name, double, single, bare in JAAS_PAIR.findall(jaas)
    }
    if "username" not in pairs or "password" not in pairs:
        raise BadOption('kafka.sasl.jaas.config needs username="..." and password="..."')
    return Sasl(mechanism, pairs["username"], pairs["password"])
