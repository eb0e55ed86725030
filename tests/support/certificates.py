"""Certificates and node keys of a federation on this machine."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import Any


def write(folder: Path, nodes: int) -> list[str]:
    """Write `ca.crt`, `server.pem`, `server.key`, and a key pair `node0`, `node0.pub`, ... for each node.

    Returns the options by which a server uses them.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    plain, pem = serialization.NoEncryption(), serialization.Encoding.PEM
    folder.mkdir(parents=True, exist_ok=True)
    authority, server = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    (folder / "ca.crt").write_bytes(_certificate("ca", authority.public_key(), authority, authority=True))
    (folder / "server.pem").write_bytes(_certificate("localhost", server.public_key(), authority, authority=False))
    (folder / "server.key").write_bytes(server.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    for number in range(nodes):
        key = ec.generate_private_key(ec.SECP384R1())
        private = key.private_bytes(pem, serialization.PrivateFormat.OpenSSH, plain)
        (folder / f"node{number}").write_bytes(private)
        (folder / f"node{number}").chmod(0o600)
        public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        (folder / f"node{number}.pub").write_bytes(public)
    names = {"ssl-ca-certfile": "ca.crt", "ssl-certfile": "server.pem", "ssl-keyfile": "server.key"}
    return [part for option, name in names.items() for part in (f"--{option}", str(folder / name))]


def _certificate(name: str, public: Any, signer: Any, *, authority: bool) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.x509.oid import NameOID

    now = datetime.datetime.now(datetime.UTC)
    issuer, subject = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, own)]) for own in ("ca", name))
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(authority, None), True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), False)
    )
    if authority:
        made = made.add_extension(x509.KeyUsage(False, False, False, False, False, True, True, False, False), True)
    else:
        local = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        made = made.add_extension(x509.SubjectAlternativeName(local), False)
    return made.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
