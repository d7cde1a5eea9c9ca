"""How a connection is protected: TLS settings that win over those in a DSN, and what the settings of a connection amount to.

libpq's own default is `prefer`: encrypted where the server offers it, to whoever answers. Only `verify-ca` and `verify-full` make
sure who that is, and they need to know whom to trust.
Source: https://www.postgresql.org/docs/current/libpq-ssl.html
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from leasequeue.errors import BadInput

MODES = ("require", "verify-ca", "verify-full")
WEAKER = ("disable", "allow", "prefer")
VERIFYING = ("verify-ca", "verify-full")
SYSTEM = "system"
_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")


@dataclass(frozen=True)
class Tls:
    """Settings that are applied last: nothing in a DSN or a Secret weakens them.

    Args:
        mode: `require`, `verify-ca` or `verify-full`; None leaves what the DSN says (`verify-full` where it says nothing and
            `root_cert` is given).
        root_cert: file with the certificates that are trusted (PEM), or `system` for those of the machine; read at each connect.

    Raises:
        BadInput: another mode; `system` with a mode weaker than verify-full, which libpq refuses.
    """

    mode: str | None = None
    root_cert: str | None = None

    def __post_init__(self) -> None:
        if self.mode is not None and self.mode not in MODES:
            problem = f"must be one of {', '.join(MODES)}: weaker ones may send everything in the clear"
            raise BadInput("ssl_mode", self.mode, problem)
        if self.root_cert == SYSTEM and self.mode not in (None, "verify-full"):
            raise BadInput("ssl_mode", self.mode, "must be verify-full where ssl_root_cert is system")

    def over(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """libpq parameters `given`, with these settings on top."""
        result = dict(given)
        if self.root_cert:
            result["sslrootcert"] = self.root_cert
            result.setdefault("sslmode", "verify-full")
        if self.mode:
            # GSS encryption would be tried first and pass by the certificate.
            result |= {"sslmode": self.mode, "gssencmode": "disable"}
        if result.get("sslrootcert") == SYSTEM:
            _show_system_bundle()
        return result


PLAIN = Tls()
"""What the DSN says, and nothing else."""


class Trust(StrEnum):
    """What is known of the server at the other end."""

    VERIFIED = "verified"
    """Its certificate was issued by an authority we trust (and, with verify-full, for this host)."""
    ENCRYPTED = "encrypted"
    """Encrypted to whoever answers: sslmode=require."""
    OPEN = "open"
    """It may be plain text: sslmode prefer, allow or disable, or none given."""
    LOCAL = "local"
    """A unix socket: nothing crosses a network."""


def mode_of(parameters: Mapping[str, Any]) -> str:
    """The sslmode that libpq parameters amount to."""
    given = parameters.get("sslmode")
    return str(given) if given else ("verify-full" if parameters.get("sslrootcert") == SYSTEM else "prefer")


def trust(parameters: Mapping[str, Any]) -> Trust:
    """What libpq parameters make sure of."""
    hosts = str(parameters.get("host") or "").split(",")
    if not parameters.get("hostaddr") and all(not host or host.startswith(("/", "@")) for host in hosts):
        return Trust.LOCAL
    mode = mode_of(parameters)
    if mode in VERIFYING:
        return Trust.VERIFIED
    return Trust.ENCRYPTED if mode == "require" else Trust.OPEN


def _show_system_bundle() -> None:
    """Tell libpq's OpenSSL where this machine keeps its authorities: that of the wheel was built for another distribution."""
    known = (ssl.get_default_verify_paths().cafile, *_BUNDLES)
    found = next((path for path in known if path and Path(path).exists()), None)
    if found is not None:
        os.environ.setdefault("SSL_CERT_FILE", found)
