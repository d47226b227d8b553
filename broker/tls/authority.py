"""A private certificate authority: the certificates that `barnabas security` makes.

Keys are EC P-256, which every client of TLS 1.2 and 1.3 supports. The package `cryptography` makes
them.
Kafka has no such tool; its manual describes the same steps with keytool and openssl.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from barnabas.config import ConfigError

AUTHORITY_DAYS = 3650
BROKER_DAYS = 397  # the longest that strict clients accept
CLOCK_SKEW = datetime.timedelta(hours=1)  # a client whose clock is behind accepts a new certificate


class Authority:
    """A certificate that signs others, and its key."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate, self._key = certificate, key

    @classmethod
    def new(cls, name: str) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        builder = (
            _builder(subject, subject, key, AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
        )
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def read(cls, certificate_pem: bytes, key_pem: bytes) -> Authority:
        """Raises ConfigError."""
        try:
            certificate = x509.load_pem_x509_certificate(certificate_pem)
            key = serialization.load_pem_private_key(key_pem, None)
        except (ValueError, TypeError) as error:
            raise ConfigError(f"the certificate authority cannot be read: {error}.") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or (
            key.public_key() != certificate.public_key()
        ):
            raise ConfigError("the key does not belong to the authority's certificate.")
        return cls(certificate, key)

    @property
    def certificate_pem(self) -> bytes:
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return _key_pem(self._key)

    def broker_pem(self, hosts: Sequence[str]) -> bytes:
        """A key and its certificate for a broker that clients reach as `hosts`: DNS names or IP
        addresses, the first one is the subject's. Raises ConfigError."""
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self._certificate.subject
        builder = (
            _builder(_name(hosts[0]), issuer, key, BROKER_DAYS)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(
                x509.SubjectAlternativeName([_alternative(h) for h in hosts]), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        certificate = builder.sign(self._key, hashes.SHA256())
        return _key_pem(key) + certificate.public_bytes(serialization.Encoding.PEM)


def hosts_of(certificate_pem: bytes) -> list[str]:
    """The names for which a broker's certificate was made, in their order. Raises ConfigError."""
    try:
        certificate = x509.load_pem_x509_certificate(certificate_pem)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound) as error:
        raise ConfigError(f"the broker's certificate cannot be read: {error}.") from None
    return [str(name.value) for name in names]


def expires(certificate_pem: bytes) -> datetime.datetime:
    """When the first certificate of the text expires, in UTC."""
    return x509.load_pem_x509_certificate(certificate_pem).not_valid_after_utc


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(common: str) -> x509.Name:
    try:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
    except ValueError as error:  # X.509 limits a common name to 64 characters
        raise ConfigError(f"{common} cannot be the name of a certificate: {error}.") from None


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise ConfigError(f"{host} is neither a DNS name in ASCII nor an IP address.") from None


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
