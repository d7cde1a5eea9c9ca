"""For each ServiceAccount named: which rights does the operator's own check find missing? Run inside the cluster.

python -m tests.operator.ask_rights NAMESPACE WATCHED|'' ACCOUNT…
"""

from __future__ import annotations

import asyncio
import json
import sys

from kubernetes.aio.client import ApiClient

from leasequeue_operator.kube import Kube, login
from leasequeue_operator.selfcheck import missing_rights


async def main() -> None:
    """Ask as each of them, by impersonation."""
    namespace, watched, *accounts = sys.argv[1:]
    found: dict[str, list[str]] = {}
    for account in accounts:
        client = ApiClient(await login())
        client.set_default_header("Impersonate-User", f"system:serviceaccount:{namespace}:{account}")  # type: ignore[no-untyped-call]
        kube = Kube(client, timeout_s=30)
        found[account] = [str(one) for one in await missing_rights(kube, (watched,) if watched else ())]
        await kube.close()
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main())
