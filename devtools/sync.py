"""Writes every file of the chart, of deploy/ and of docs/reference that is made from another: `python -m devtools.sync [--check]`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from devtools import chart_readme, dashboard, reference, sync_crd, sync_defaults, sync_deploy, sync_rights, sync_version

ROOT = Path(__file__).resolve().parent.parent


def first_files() -> dict[Path, str]:
    """What is made from hand-written files alone."""
    return (
        sync_version.render()
        | sync_crd.render()
        | sync_defaults.render()
        | sync_rights.render()
        | chart_readme.render()
        | reference.render()
        | dashboard.render()
    )


def drifted(files: dict[Path, str]) -> list[Path]:
    """Those of `files` that are missing on disk or differ from it."""
    return [path for path, text in files.items() if not path.exists() or path.read_text() != text]


def stale_deploy_files(files: dict[Path, str]) -> list[Path]:
    """Files below deploy/operator and deploy/monitoring that nothing makes any more."""
    folders = [sync_deploy.DEPLOY / name for name in ("operator", "monitoring")]
    return [path for folder in folders for path in folder.glob("*.yaml") if path not in files]


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; exit 1 and name the files that are not up to date.")
def main(check: bool) -> None:
    """Make the chart's CRD, defaults and README, the kustomize bases of deploy/, and docs/reference, from their sources."""
    # deploy/ is rendered from the chart, so the chart's own files must be right before.
    try:
        files = first_files()
    except ValueError as ex:
        raise click.ClickException(str(ex)) from None
    changed = _bring(files, check)
    if not (check and changed):
        files = sync_deploy.render()
        changed += _bring(files, check)
        for path in stale_deploy_files(files):
            changed.append(path)
            if not check:
                path.unlink()
    for path in changed:
        click.echo(f"{'not up to date' if check else 'written'}: {path.relative_to(ROOT)}")
    sys.exit(1 if check and changed else 0)


def _bring(files: dict[Path, str], check: bool) -> list[Path]:
    changed = drifted(files)
    for path in () if check else changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path])
    return changed


if __name__ == "__main__":
    main()
