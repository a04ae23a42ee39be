"""Certificates of the control plane: an authority, and what it signs. They are valid for one year, and are made for each start."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAYS = 365  # Kueue renews a certificate that ends in less than 90
_USAGES = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, in PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """A certificate authority. Kueue takes one only with an RSA key in PKCS#1 and its own name as a DNS name."""

    def __init__(self, name: str) -> None:
        self._key = _new_key()
        self._name = _named(name)
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=False, content_commitment=False, data_encipherment=False,
            encipher_only=False, decipher_only=False, key_agreement=False, key_encipherment=False,
        )  # fmt: skip
        made = _builder(self._name, self._name, self._key, authority=True)
        made = made.add_extension(usage, critical=True)
        made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        self._certificate = made.sign(self._key, hashes.SHA256())

    @cached_property
    def pair(self) -> Pair:
        """Return its own certificate and key."""
        return Pair(_pem(self._certificate), pkcs1(self._key))

    def signed(self, name: str, *, group: str = "", hosts: tuple[str, ...] = ()) -> Pair:
        """Return a pair for the user `name` of a group, or for a server with these names and addresses."""
        key = _new_key()
        made = _builder(_named(name, group), self._name, key, authority=False)
        made = made.add_extension(x509.ExtendedKeyUsage(_USAGES), critical=False)
        if hosts:
            made = made.add_extension(x509.SubjectAlternativeName(list(_hosts(hosts))), critical=False)
        return Pair(_pem(made.sign(self._key, hashes.SHA256())), pkcs1(key))


def token_keys() -> tuple[bytes, bytes]:
    """Return the private and the public key that sign the tokens of service accounts."""
    key = _new_key()
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return pkcs1(key), public


def pkcs1(key: rsa.RSAPrivateKey) -> bytes:
    """Return the key in the only form that Kueue reads."""
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _named(name: str, group: str = "") -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group)] if group else []
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _hosts(hosts: tuple[str, ...]) -> Iterator[x509.GeneralName]:
    for host in hosts:
        yield x509.IPAddress(ip_address(host)) if host[0].isdigit() else x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: rsa.RSAPrivateKey, *, authority: bool
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=_DAYS))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
