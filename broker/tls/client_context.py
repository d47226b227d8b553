"""TLS of a client: a context of the standard library's ssl from stores in every format.

It trusts only the certificates of the truststore, not those of the system, as Java does. A
certificate in it need not be an authority's.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Sequence

from barnabas.config import ConfigError
from barnabas.tls.stores import (
    Identity,
    StoreSettings,
    pem_with_key,
    read_identity,
    read_store,
    read_trusted,
)

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def client_context(
    stores: StoreSettings, versions: Sequence[str], *, checks_host: bool
) -> ssl.SSLContext:
    """`versions`: some of VERSIONS, in their order. Without a keystore the client has no
    certificate. Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version, context.maximum_version = VERSIONS[versions[0]], VERSIONS[versions[-1]]
    context.check_hostname = checks_host
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=b"".join(read_trusted(stores)))
    location = stores.text("ssl.keystore.location")
    if location is not None:
        try:
            _load(context, location, stores)
        except (OSError, ValueError) as error:
            if isinstance(error, ConfigError):
                raise
            name = stores.name_of("ssl.keystore.location")
            raise ConfigError(f"{name}={location}: no key and certificate: {error}.") from None
    return context


def _load(context: ssl.SSLContext, location: str, stores: StoreSettings) -> None:
    """ssl takes a key from files of PEM alone."""
    if stores.text("ssl.keystore.type") == "PEM":
        pem_with_key(location, read_store(location, stores.name_of("ssl.keystore.location")))
        # Without a password OpenSSL would ask the terminal.
        context.load_cert_chain(location, password=stores.text("ssl.key.password") or "")
        return
    identity = read_identity(stores)
    descriptor, path = tempfile.mkstemp(suffix=".pem")  # of mode 600
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(_pem(identity))
        context.load_cert_chain(path)
    finally:
        os.unlink(path)


def _pem(identity: Identity) -> str:
    key = ssl.DER_cert_to_PEM_cert(identity.key).replace("CERTIFICATE", "PRIVATE KEY")
    return key + "".join(map(ssl.DER_cert_to_PEM_cert, identity.chain))
