"""A MariaDB of a site: its own address, name and certificate authority; it refuses every connection without TLS.

site = ExternalDatabase(slurm)
site.start()
secret = site.secret()
"""

import datetime
import json
import subprocess

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from real_slurm import RealSlurm

HOST, PORT, ADDRESS = "db.example.org", 3307, "10.249.0.7"
FOLDER, CA, OTHER_CA = "/srv/site-db", "/etc/ssl/site-ca.pem", "/etc/ssl/other-ca.pem"
USER, PASSWORD = "slurm_site", "correct-horse-battery"
SOCKET = f"{FOLDER}/socket"
CLIENT = ("mariadb", "--no-defaults", f"--socket={SOCKET}", "--skip-ssl")  # the server's own socket
CNF = f"""[mariadbd]
datadir={FOLDER}/data
socket={SOCKET}
pid-file={FOLDER}/pid
bind-address={ADDRESS}
port={PORT}
innodb_buffer_pool_size=64M
innodb_lock_wait_timeout=900
loose_innodb_snapshot_isolation=OFF
"""
TLS = f"""ssl_cert={FOLDER}/cert.pem
ssl_key={FOLDER}/key.pem
require_secure_transport=ON
"""
SQL = f"""CREATE DATABASE slurm_acct_db;
CREATE USER '{USER}'@'%' IDENTIFIED BY '{PASSWORD}' REQUIRE SSL;
GRANT ALL ON slurm_acct_db.* TO '{USER}'@'%';
"""


class ExternalDatabase:
    """The server in the namespaces of `slurm`, on an address and a port of its own."""

    def __init__(self, slurm: RealSlurm) -> None:
        self.slurm = slurm
        slurm._host("ip", "addr", "add", f"{ADDRESS}/32", "dev", "br0")
        with slurm.path("/etc/hosts").open("a") as hosts:
            hosts.write(f"{ADDRESS} {HOST}\n")
        slurm.folder(FOLDER, "mysql")
        self._certificates()
        self.configure(TLS)
        slurm.must(
            "mariadb-install-db",
            "--no-defaults",
            "--user=mysql",
            f"--datadir={FOLDER}/data",
            "--skip-test-db",
        )

    def configure(self, tls: str) -> None:
        """Write the server's file; `tls`: its lines about TLS."""
        self.slurm.write(f"{FOLDER}/my.cnf", CNF + tls)

    def start(self, *, fresh: bool = True) -> "subprocess.Popen[bytes]":
        """Start it; `fresh`: with the database and the user."""
        process = self.slurm.spawn(
            "/usr/sbin/mariadbd", f"--defaults-file={FOLDER}/my.cnf", "--user=mysql", name="site-db"
        )

        def answers() -> bool:
            assert process.poll() is None, self.slurm.log("site-db.out")
            return self.slurm.run(*self._sql("SELECT 1")).code == 0

        self.slurm.wait(answers, "the site's database answers")
        if fresh:
            self.slurm.must(*CLIENT, stdin=SQL)
        return process

    def sql(self, query: str) -> str:
        """The answer to a query of the server's root."""
        return self.slurm.must(*self._sql(query))

    def secret(self, password: str = PASSWORD) -> bytes:
        """The value that the site puts into Secrets Manager."""
        return json.dumps({"username": USER, "password": password}).encode()

    def _sql(self, query: str) -> tuple[str, ...]:
        return (*CLIENT, "-N", "--execute", query)

    def _certificates(self) -> None:
        keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("ca", "other", "server")}
        for name, path in (("ca", CA), ("other", OTHER_CA)):
            self.slurm.write(
                path, _pem(_signed(f"the {name}", keys[name], f"the {name}", keys[name], ca=True))
            )
        server = _signed("the ca", keys["ca"], HOST, keys["server"], ca=False)
        self.slurm.write(f"{FOLDER}/cert.pem", _pem(server), owner="mysql")
        key = keys["server"].private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        self.slurm.write(f"{FOLDER}/key.pem", key.decode(), mode=0o600, owner="mysql")


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _signed(
    issuer: str, by: ec.EllipticCurvePrivateKey, subject: str, key: ec.EllipticCurvePrivateKey, *, ca: bool
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(subject if not ca else "ca.example.org")]),
            critical=False,
        )
        .sign(by, hashes.SHA256())
    )
