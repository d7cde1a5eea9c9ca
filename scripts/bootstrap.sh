#!/usr/bin/env bash
# Makes (or finds) a Python environment of the project outside the checkout and prints its directory.
#   scripts/bootstrap.sh        everything that is run here: requirements/dev.lock, and the project itself, editable
#   scripts/bootstrap.sh docs   what builds the documentation: requirements/docs.lock alone
# Key: the lock file, the Python version and the checkout's path (the project is installed editable). Safe to run twice at once.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
cache=${LEASEQUEUE_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/leasequeue}
uv_version=0.13.9
name=${1:-dev}
lock=$here/requirements/$name.lock
say() { echo "bootstrap: $*" >&2; }

if [ ! -e "$lock" ]; then
    say "there is no requirements/$name.lock"
    exit 2
fi

python=""
for candidate in "${PYTHON:-}" python3.13 python3.12 python3.11 python3; do
    [ -n "$candidate" ] || continue
    command -v "$candidate" >/dev/null 2>&1 || continue
    "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
    python=$(command -v "$candidate")
    break
done
if [ -z "$python" ]; then
    say "Python 3.11 or newer is needed; install it (Debian 12: apt-get install python3 python3-venv) or set PYTHON"
    exit 2
fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing python3-venv"
        { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy python3-venv; } >&2
    else
        say "$python has no venv module; install python3-venv"
        exit 2
    fi
fi

key=$({ cat "$lock" "$here/pyproject.toml" "$0"; "$python" -VV; echo "$here"; } | sha256sum | cut -c1-16)
venv=$cache/venv/$key
mkdir -p "$cache/venv"
exec 9>"$cache/venv/$key.lock"
flock 9
if [ ! -e "$venv/.complete" ]; then
    rm -rf "$venv"
    say "making the Python environment (once per lock file)"
    "$python" -m venv "$venv"
    "$venv/bin/python" -m pip install -q --disable-pip-version-check "uv==$uv_version" >&2
    # The system's certificates are used where they are: some networks add their own.
    [ -n "${SSL_CERT_FILE:-}" ] || [ ! -e /etc/ssl/certs/ca-certificates.crt ] || export SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
    "$venv/bin/uv" pip install -q --python "$venv/bin/python" --require-hashes -r "$lock" >&2
    [ "$name" != dev ] || "$venv/bin/uv" pip install -q --python "$venv/bin/python" --no-deps -e "$here" >&2
    touch "$venv/.complete"
fi
echo "$venv"
