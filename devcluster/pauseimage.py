"""The image of the container that holds a pod's namespaces: one static program, packed without any other tool."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import subprocess
import tarfile
import tempfile
from pathlib import Path

from devcluster.addresses import PAUSE_IMAGE
from devcluster.errors import DevClusterError

SOURCE = Path(__file__).parent / "pause" / "pause.c"


def ensure(cache: Path) -> Path:
    """Archive of the pause image, compiled first where it is not cached.

    :raises DevClusterError: the compiler failed.
    """
    key = hashlib.sha256(SOURCE.read_bytes() + PAUSE_IMAGE.encode()).hexdigest()[:16]
    archive = cache / "images" / f"pause-{key}.tar"
    if not archive.exists():
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
            program = Path(folder) / "pause"
            _compile(program)
            temporary = Path(folder) / "pause.tar"
            temporary.write_bytes(pack(program.read_bytes(), PAUSE_IMAGE))
            temporary.replace(archive)
    return archive


def _compile(program: Path) -> None:
    command = ["cc", "-Os", "-static", "-Wall", "-Werror", "-o", str(program), str(SOURCE)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if result.returncode != 0:
        raise DevClusterError(f"{' '.join(command)} failed:\n{result.stderr.strip()[-2000:]}")


def pack(program: bytes, name: str) -> bytes:
    """A docker-archive of the image ``name`` with ``program`` as its only file, /pause."""
    layer = _tar({"pause": program}, mode=0o755)
    config = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    return _tar(
        {
            "config.json": json.dumps(config).encode(),
            "layer.tar": layer,
            "manifest.json": json.dumps(manifest).encode(),
        },
        mode=0o644,
    )


def _tar(files: dict[str, bytes], mode: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
