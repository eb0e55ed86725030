"""A node and a SuperLink that can't speak with each other, by encryption or by ports: one line, no endless tries."""

from __future__ import annotations

import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
import tomli_w

pytest.importorskip("flwr")

from fedsash.lab.cli import main
from fedsash.lab.served.superlink import SuperLink, check_encryption, check_port
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


def test_a_port_that_is_taken_is_one_line_that_names_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "mine.toml"
    data.write_text('data.name = "digits"\n')
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        option = f"--supernode=--insecure --port {port}"
        assert main(["flower", "node", str(data), "--number", "0", "--superlink", "127.0.0.1:9", option]) == 2
        with pytest.raises(RunError, match="is in use"):
            check_port([f"--port={port}", "--host=127.0.0.1"])
    line = capsys.readouterr().err
    assert f"port {port} of 127.0.0.1 is in use" in line and f"'--port {port + 1}'" in line and line.count("\n") == 1
    for options in ([f"--port={port}"], ["--port", "x"], ["--port=99999"]):
        check_port(options)


class NoSuperLink(BaseHTTPRequestHandler):
    """A server that knows no request."""

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.mark.full
def test_another_server_at_the_port_of_the_superlink_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with HTTPServer(("127.0.0.1", 0), NoSuperLink) as server:
        address = f"127.0.0.1:{server.server_port}"
        Thread(target=server.serve_forever, daemon=True).start()
        home = tmp_path / ".flwr"
        home.mkdir()
        (home / "config.toml").write_text(f'[superlink.lab]\naddress = "{address}"\ninsecure = true\n')
        monkeypatch.setenv("FLWR_HOME", str(home))
        app = {"publisher": "a", "components": {"serverapp": "app:app", "clientapp": "app:app"}}
        (tmp_path / "app").mkdir()
        project = {"project": {"name": "a", "version": "1.0.0"}, "tool": {"flwr": {"app": app}}}
        (tmp_path / "app" / "pyproject.toml").write_text(tomli_w.dumps(project))
        (tmp_path / "app" / "app.py").write_text("app = None\n")
        with pytest.raises(
            RunError, match=f"who answers at {address} is no SuperLink: if another program has its port"
        ):
            SuperLink("lab").submit(tmp_path / "app")
        server.shutdown()
