"""A certificate authority for tests, and the certificates that it issues."""

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = datetime.timedelta(days=1)
SHORT_NAMES = {
    "CN": NameOID.COMMON_NAME,
    "O": NameOID.ORGANIZATION_NAME,
    "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "C": NameOID.COUNTRY_NAME,
    "L": NameOID.LOCALITY_NAME,
    "ST": NameOID.STATE_OR_PROVINCE_NAME,
    "emailAddress": NameOID.EMAIL_ADDRESS,
    "UID": NameOID.USER_ID,
    "DC": NameOID.DOMAIN_COMPONENT,
}
KEYS = {
    "ec": lambda: ec.generate_private_key(ec.SECP256R1()),
    "rsa": lambda: rsa.generate_private_key(65537, 2048),
}


@dataclass
class Issued:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
    issuer_pem: str = ""  # the certificates of intermediate authorities

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def chain_pem(self) -> str:
        return self.certificate_pem + self.issuer_pem

    def key_pem(self, password: str | None = None) -> str:
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            encryption = serialization.BestAvailableEncryption(password.encode())
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
        ).decode()

    @property
    def certificate_der(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.DER)

    @property
    def key_der(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.DER,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )

    def write(self, path: Path, password: str | None = None) -> Path:
        """A PEM file of the key and the chain, for its owner alone."""
        path.write_text(self.key_pem(password) + self.chain_pem)
        path.chmod(0o600)
        return path


def name_of(text: str) -> x509.Name:
    """`CN=a,O=b`, in the order of the certificate."""
    pairs = (part.split("=", 1) for part in text.split(","))
    return x509.Name([x509.NameAttribute(SHORT_NAMES[short], value) for short, value in pairs])


class Authority:
    """A certificate authority. `above`: the one that issued it."""

    def __init__(self, name: str = "CN=test authority", above: "Authority | None" = None) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = above.own if above else None
        made = self._begin(name_of(name), key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        made = made.issuer_name(issuer.certificate.subject if issuer else name_of(name))
        self.own = Issued(made.sign(issuer.key if issuer else key, hashes.SHA256()), key)
        self._is_root = above is None

    @property
    def pem(self) -> str:
        return self.own.certificate_pem

    @property
    def der(self) -> bytes:
        return self.own.certificate_der

    def _begin(self, subject, public_key, days=(-1, 30)):  # type: ignore[no-untyped-def]
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + days[0] * DAY)
            .not_valid_after(now + days[1] * DAY)
        )

    def issue(
        self,
        name: str = "CN=localhost",
        hosts: tuple[str, ...] = ("localhost", "127.0.0.1"),
        *,
        kind: str = "ec",
        days: tuple[int, int] = (-1, 30),
        padding_bytes: int = 0,
    ) -> Issued:
        """`days`: first and last day of validity, from today. `padding_bytes` make it large."""
        key = KEYS[kind]()
        names = [_general_name(host) for host in hosts]
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        made = self._begin(name_of(name), key.public_key(), days).issuer_name(
            self.own.certificate.subject
        )
        made = made.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        if names:
            made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        if padding_bytes:
            oid = x509.ObjectIdentifier("1.2.3.4.5")
            made = made.add_extension(
                x509.UnrecognizedExtension(oid, bytes(padding_bytes)), critical=False
            )
        issuer_pem = "" if self._is_root else self.pem
        return Issued(made.sign(self.own.key, hashes.SHA256()), key, issuer_pem)

    def client_context(
        self, own: Issued | None = None, folder: Path | None = None
    ) -> ssl.SSLContext:
        """A context of the standard library's ssl that trusts this authority."""
        context = ssl.create_default_context(cadata=self.pem)
        if own is not None:
            assert folder is not None
            path = own.write(folder / f"client-{own.certificate.serial_number}.pem")
            context.load_cert_chain(path)
        return context


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
