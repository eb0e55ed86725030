"""A node and a SuperLink of which one speaks with encryption and the other without: one line, and no endless tries."""

from __future__ import annotations

import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

pytest.importorskip("flwr")

from fedsash.lab.cli import main
from fedsash.lab.served.superlink import check_encryption
from fedsash.settings.errors import RunError

WITH = ["--root-certificates", "ca.crt"]
WITHOUT = ["--insecure"]


@contextmanager
def listening(certificate: Path | None) -> Iterator[str]:
    """The address of somebody who answers one greeting: with TLS, or as a server of HTTP does that expects none."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                if certificate is None:
                    connection.recv(1)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    return
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(certificate, certificate.with_suffix(".key"))
                with context.wrap_socket(connection, server_side=True):
                    pass

        thread = Thread(target=answer)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(10)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("tls") / "server.crt"
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", file.with_suffix(".key")]
    command = ["openssl", "req", "-x509", *key, "-subj", "/CN=localhost", "-out", file]
    subprocess.run(command, check=True, capture_output=True)
    return file


def test_a_node_without_encryption_ends_at_a_superlink_that_has_it(
    certificate: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "mine.toml"
    data.write_text('data.name = "digits"\n')
    with listening(certificate) as address:
        command = ["flower", "node", str(data), "--number", "0", "--superlink", address, "--supernode=--insecure"]
        assert main(command) == 2
    line = capsys.readouterr().err
    assert line.startswith(f"fedsash: the SuperLink at {address} speaks with encryption (TLS), and this node without:")
    assert line.count("\n") == 1


def test_a_node_with_encryption_ends_at_a_superlink_that_has_none() -> None:
    with listening(None) as address, pytest.raises(RunError, match="speaks without encryption, and this node with it"):
        check_encryption(address, WITH)


def test_equal_ones_and_a_superlink_that_is_not_there_yet_are_left_to_flower(certificate: Path) -> None:
    with listening(certificate) as address:
        check_encryption(address, WITH)
    with listening(None) as address:
        check_encryption(address, WITHOUT)
    check_encryption(address, WITHOUT)
    check_encryption(address, WITH)
    check_encryption("no address", WITH)
