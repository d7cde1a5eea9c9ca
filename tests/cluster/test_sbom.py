"""The bills of the real images: valid, and saying what pip and dpkg say in the image."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from devcluster import sbom
from devcluster.imagespec import IMAGES, version

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="building images needs root"),
]


def test_every_image_has_a_bill_of_what_is_in_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "devcluster", "sbom", "--output", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {f"leasequeue-{name}.cdx.json" for name in IMAGES}
    for name, spec in IMAGES.items():
        text = (tmp_path / f"leasequeue-{name}.cdx.json").read_text()
        assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
        found = {(c["purl"].split("/")[0], c["name"]): c for c in json.loads(text)["components"]}
        assert ("pkg:deb", "libc6") in found
        python = {(n, c["version"]): c for (kind, n), c in found.items() if kind == "pkg:pypi"}
        locked = sbom.locked(sbom.REPOSITORY / spec.lock) if spec.lock else {}
        ours = {("leasequeue", version())} if spec.lock else set()
        assert set(python) == set(locked) | ours, name
        for key, hashes in locked.items():
            assert {p["value"] for p in python[key].get("properties", ())} == set(hashes)
