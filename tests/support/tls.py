"""Certificates of a throw-away authority, and a PostgreSQL server that shows one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from devtools.pgserver import PgServer

DAYS = "2"


class Authority:
    """An authority in a folder of its own.

    Args:
        folder: where its files go; made where it is missing.
        name: its name, so that two differ.
    """

    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.ca = folder / "ca.crt"
        self._key("ca")
        self._openssl("req", "-x509", "-new", "-key", "ca.key", "-subj", f"/CN={name}", "-days", DAYS, "-out", "ca.crt")

    def issue(self, *names: str) -> tuple[Path, Path]:
        """Certificate and key of a server with these names (`DNS:…`, `IP:…`)."""
        self._key("server")
        (self.folder / "server.ext").write_text(f"extendedKeyUsage=serverAuth\nsubjectAltName={','.join(names)}\n")
        self._openssl("req", "-new", "-key", "server.key", "-subj", "/CN=server", "-out", "server.csr")
        self._openssl(
            "x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", DAYS,
            "-extfile", "server.ext", "-out", "server.crt",
        )  # fmt: skip
        return self.folder / "server.crt", self.folder / "server.key"

    def _key(self, name: str) -> None:
        self._openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", f"{name}.key")

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True, timeout=30)


class TlsServer:
    """PostgreSQL 15 (the wheel's 18 is built without TLS) whose certificate can be changed while it runs."""

    def __init__(self, pg: PgServer) -> None:
        self.pg = pg

    def show(self, certificate: tuple[Path, Path]) -> None:
        """Use this certificate and key from now on."""
        for source, name in zip(certificate, ("server.crt", "server.key"), strict=True):
            target = self.pg.data / name
            shutil.copy(source, target)
            owner = self.pg.data.stat()
            shutil.chown(target, owner.st_uid, owner.st_gid)
            target.chmod(0o600)
        self.configure({"ssl": "on", "ssl_cert_file": "server.crt", "ssl_key_file": "server.key"})

    def configure(self, settings: Mapping[str, str]) -> None:
        """Change settings of the running server."""
        with (self.pg.data / "postgresql.auto.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
        subprocess.run(["kill", "-HUP", str(self.pg.pid)], check=True, timeout=10)

    def parts(self, **changes: str) -> dict[str, str]:
        """The keys of a Secret that leads here, with `changes`."""
        found = {"host": "127.0.0.1", "port": str(self.pg.port), "user": "postgres", "password": self.pg.password}
        return {**found, "dbname": "postgres", **changes}
