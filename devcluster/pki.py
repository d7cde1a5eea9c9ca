"""Keys and certificates of one throwaway cluster, made by the openssl command."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

from devcluster.addresses import API_SERVICE_IP, NODE_IP, NODE_NAME

_DAYS = "3650"


def _openssl(*args: str, folder: Path) -> None:
    subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True, timeout=30)


def _new_key(name: str, folder: Path) -> None:
    # P-256: a key takes a millisecond, where RSA takes most of a second on a busy machine.
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", f"{name}.key", folder=folder)
    (folder / f"{name}.key").chmod(0o600)


def _issue(name: str, subject: str, extensions: str, folder: Path) -> None:
    _new_key(name, folder)
    (folder / f"{name}.ext").write_text(extensions)
    _openssl("req", "-new", "-key", f"{name}.key", "-subj", subject, "-out", f"{name}.csr", folder=folder)
    _openssl(
        "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
        "-days", _DAYS, "-extfile", f"{name}.ext", "-out", f"{name}.crt", folder=folder,
    )  # fmt: skip


def create(folder: Path) -> None:
    """Write the authority, the service-account key pair and a certificate for each part into ``folder``."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _new_key("ca", folder)
    _openssl("req", "-x509", "-new", "-key", "ca.key", "-subj", "/CN=devcluster-ca", "-days", _DAYS,
             "-out", "ca.crt", folder=folder)  # fmt: skip
    _new_key("sa", folder)
    _openssl("ec", "-in", "sa.key", "-pubout", "-out", "sa.pub", folder=folder)
    server = f"subjectAltName=IP:127.0.0.1,IP:{API_SERVICE_IP},IP:{NODE_IP},DNS:localhost,DNS:kubernetes,"
    server += "DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local"
    _issue("apiserver", "/CN=kube-apiserver", f"extendedKeyUsage=serverAuth\n{server}", folder)
    _issue(
        "node", f"/O=system:nodes/CN=system:node:{NODE_NAME}",
        f"extendedKeyUsage=clientAuth,serverAuth\nsubjectAltName=IP:{NODE_IP},DNS:{NODE_NAME}", folder,
    )  # fmt: skip
    client = "extendedKeyUsage=clientAuth"
    _issue("admin", "/O=system:masters/CN=admin", client, folder)
    for part in ("kube-controller-manager", "kube-scheduler", "kube-proxy"):
        _issue(part, f"/CN=system:{part}", client, folder)


def kubeconfig(folder: Path, user: str, server: str = "https://127.0.0.1:6443") -> str:
    """A self-contained kubeconfig (JSON is YAML) for the certificate ``user`` in ``folder``."""

    def data(name: str) -> str:
        return base64.b64encode((folder / name).read_bytes()).decode()

    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "devcluster", "cluster": {"server": server, "certificate-authority-data": data("ca.crt")}}],
            "users": [
                {
                    "name": user,
                    "user": {
                        "client-certificate-data": data(f"{user}.crt"),
                        "client-key-data": data(f"{user}.key"),
                    },
                }
            ],
            "contexts": [{"name": "devcluster", "context": {"cluster": "devcluster", "user": user}}],
            "current-context": "devcluster",
        },
        indent=1,
    )
