"""TLS and SASL by the settings of Kafka's Java client.

| setting | values |
|---|---|
| security.protocol | PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL |
| ssl.truststore.location or .certificates | the certificates to trust: a store, or PEM |
| ssl.keystore.location | the client's certificates and key: a store |
| ssl.keystore.certificate.chain, ssl.keystore.key | the same as PEM |
| ssl.truststore.type, ssl.keystore.type | PEM, PKCS12, JKS; default: by the name of the file |
| ssl.truststore.password, ssl.keystore.password | of a store that is not PEM |
| ssl.key.password | of the key |
| ssl.endpoint.identification.algorithm | https; empty: the name of a broker is not checked |
| sasl.mechanism | PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI |
| sasl.jaas.config | a login module; default: section KafkaClient of the file in KAFKA_OPTS |
| of PLAIN, SCRAM | username="..." password="..." |
| of SCRAM | tokenauth=true: the user is a delegation token, the password its HMAC |
| of OAUTHBEARER | clientId, clientSecret, scope, extension_NAME, ssl.* of its endpoint |
| of GSSAPI | useKeyTab=true keyTab principal, or useTicketCache=true ticketCache principal |
| sasl.oauthbearer.token.endpoint.url | https: an identity provider's; file: a file with a token |
| sasl.oauthbearer.client.credentials.client.id, .client.secret | as clientId, clientSecret |
| sasl.oauthbearer.scope, sasl.oauthbearer.header.urlencode | as Kafka's |
| sasl.kerberos.service.name | first part of the brokers' principals; or serviceName of GSSAPI |

Options of Spark's formats have the prefix `kafka.`, files of settings have none. Stores of PKCS12
and JKS are read as the broker reads its own, when the settings are read, and are PEM from then on.
Java classes (sasl.login.callback.handler.class) are refused. No error message contains a value that
may be secret.
"""

import os
import ssl
from base64 import encodebytes
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from barnabas.client.failures import BadSetting
from barnabas.client.security import HASHES, Login, Sasl, Security, Tls

Found = TypeVar("Found")
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
STORES = ("PEM", "PKCS12", "JKS")
FAMILIES = ("security.", "ssl.", "sasl.")  # the beginnings of their names
MECHANISMS = ("PLAIN", *HASHES, "OAUTHBEARER", "GSSAPI")
JAAS, CLIENT_SECTIONS = "sasl.jaas.config", ("KafkaClient",)
OAUTH = "sasl.oauthbearer."
EXTENSION = "extension_"
# Settings that name classes, and Kafka's own classes whose function is built in here.
CLASSES = {
    "sasl.login.callback.handler.class": ("OAuthBearerLoginCallbackHandler",),
    OAUTH + "jwt.retriever.class": (
        "DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever",
    ),
}  # fmt: skip


def parse_security(
    given: Mapping[str, str], prefix: str = "", sections: Sequence[str] = CLIENT_SECTIONS
) -> Security | None:
    """Returns the security of settings whose names begin with `prefix`; None without such settings.
    `sections`: of the JAAS file, which is used without sasl.jaas.config; the first one that exists
    counts. Raises BadSetting."""
    return _Settings(given, prefix, sections).security()


class _Settings:
    """The settings, also for barnabas.tls.stores, which finds a client's stores with them."""

    def __init__(
        self, given: Mapping[str, str], prefix: str, sections: Sequence[str] = CLIENT_SECTIONS
    ) -> None:
        self._given, self._prefix, self._sections = given, prefix, sections

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
        """Returns whether a store is PKCS12 or JKS."""
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
        """Returns the chain and the key, as PEM."""
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

    def _sasl(self) -> Login:
        mechanism = (self.text("sasl.mechanism") or "GSSAPI").upper()
        if mechanism not in MECHANISMS:
            raise self._bad(
                f"sasl.mechanism is one of {', '.join(MECHANISMS)} here, not {mechanism}"
            )
        options = self._jaas_options()
        if mechanism == "OAUTHBEARER":
            return self._oauth(options)
        if mechanism == "GSSAPI":
            return self._kerberos(options)
        if "username" not in options or "password" not in options:
            raise self._bad(f'{JAAS} needs username="..." and password="..."')
        by_token = options.get("tokenauth", "").lower() == "true" and mechanism in HASHES
        return Sasl(mechanism, options["username"], options["password"], by_token)

    def _jaas_options(self) -> Mapping[str, str]:
        """Returns the options of the only login module."""
        from barnabas.config import ConfigError, jaas

        line = self.text(JAAS)
        try:
            if line is not None:
                modules = jaas.parse_line(line)
            else:
                found = jaas.sections_of_process(os.environ)[1]
                modules = next((found[name] for name in self._sections if name in found), [])
        except ConfigError as error:
            raise self._bad(f"{JAAS}: {error.problems[0].rstrip('.')}") from None
        if len(modules) != 1:
            names = " or ".join(self._sections)
            missing = f"is not set, and no JAAS file (KAFKA_OPTS) has a section {names}"
            raise self._bad(f"{JAAS} {'names several login modules' if modules else missing}")
        return modules[0].options

    def _oauth(self, options: Mapping[str, str]) -> Login:
        from barnabas.client.oauth import OAuthBearer
        from barnabas.config import ConfigError
        from barnabas.tls.https import file_of

        for name, known in CLASSES.items():
            found = self.text(name) or known[0]
            if found.rpartition(".")[2] not in known:
                raise self._bad(f"{name} is {' or '.join(known)} here, not {found}")
        where = OAUTH + "token.endpoint.url"
        url = self.text(where)
        if not url:
            raise self._bad(f"{where} is needed: https: of a token endpoint, or file: of a token")
        try:
            is_file = file_of(url) is not None
        except ConfigError as error:
            raise self._bad(f"{where}: {error.problems[0].rstrip('.')}") from None
        credentials = OAUTH + "client.credentials.client."
        client_id = self.text(credentials + "id") or options.get("clientId")
        secret = self.text(credentials + "secret") or options.get("clientSecret")
        if not is_file and not (client_id and secret):
            raise self._bad(f'{JAAS} needs clientId="..." and clientSecret="..." for {url}')
        return OAuthBearer(
            url,
            client_id or "",
            secret or "",
            self.text(OAUTH + "scope") or options.get("scope"),
            tuple(
                (name.removeprefix(EXTENSION), value)
                for name, value in options.items()
                if name.startswith(EXTENSION)
            ),
            _Settings(options, "")._tls(),
            (self.text(OAUTH + "header.urlencode") or "").lower() == "true",
        )

    def _kerberos(self, options: Mapping[str, str]) -> Login:
        from barnabas.client.kerberos import Kerberos, gssapi_package

        gssapi_package()
        service = self.text("sasl.kerberos.service.name") or options.get("serviceName")
        if not service:
            raise self._bad("sasl.kerberos.service.name is needed: of the brokers, often kafka")
        principal, keytab = options.get("principal"), options.get("keyTab")
        if options.get("useKeyTab", "").lower() == "true":
            if principal and keytab:
                return Kerberos(service, principal, keytab)
        elif options.get("useTicketCache", "").lower() == "true":
            return Kerberos(service, principal, cache=options.get("ticketCache"))
        raise self._bad(
            f'{JAAS} needs useKeyTab=true keyTab="FILE" principal="NAME", or useTicketCache=true'
        )
