"""The authorities a queue trusts: read from a Secret of its own namespace, kept as files, since libpq takes nothing else.

A file is named by its content. So another authority means other connection parameters, and with them a new connection: a rotation
takes effect at the next poll, and connections of queues with the same authority are still shared.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import shutil
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from leasequeue_operator.plan.problem import Problem
from leasequeue_operator.plan.spec import CaSecretRef


def read_authority(secret: Mapping[str, Any] | None, ref: CaSecretRef) -> bytes | Problem:
    """The certificates in a Secret, PEM.

    Args:
        secret: the Secret, None when there is none.
        ref: which Secret, and which key.
    """
    where = f"Secret {ref.name} (spec.database.caSecretRef)"
    if secret is None:
        return Problem("SecretNotFound", f"{where} does not exist in this namespace: create it.")
    data = secret.get("data") or {}
    if ref.key not in data:
        text = f"{where} has no key {ref.key}: add it, or name another in spec.database.caSecretRef.key."
        return Problem("SecretKeyNotFound", text)
    try:
        pem = base64.b64decode(data[ref.key] or "", validate=True)
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem.decode("ascii"))
    except (binascii.Error, UnicodeDecodeError, ssl.SSLError, ValueError):
        # What it holds instead is not told: it may be a key.
        return Problem("SecretInvalid", f"{where}: key {ref.key} holds no certificate in PEM form: write it anew.")
    return pem


class Authorities:
    """Files with the certificates that queues trust."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._of: dict[str, Path] = {}  # uid of a queue → its file

    def keep(self, uid: str, pem: bytes) -> str:
        """Path of a file with `pem`, made where it is not there yet; the queue's former file goes when nobody else has it."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="leasequeue-ca-"))
        path = self._folder / f"{hashlib.sha256(pem).hexdigest()}.pem"
        if not path.exists():
            part = path.with_suffix(".part")
            part.write_bytes(pem)
            part.replace(path)
        if self._of.get(uid) != path:
            self.forget(uid)
            self._of[uid] = path
        return str(path)

    def forget(self, uid: str) -> None:
        """A queue is gone, or trusts somebody else now."""
        path = self._of.pop(uid, None)
        if path is not None and path not in self._of.values():
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove all files."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder, self._of = None, {}
