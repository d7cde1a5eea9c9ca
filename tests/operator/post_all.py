"""Sends the requests on standard input to the API server and prints status and message of each; run inside the cluster."""

from __future__ import annotations

import asyncio
import json
import sys

from kubernetes.aio.client import ApiClient

from leasequeue_operator.kube import Kube, KubeError, login


async def main() -> None:
    """Send them one after the other."""
    kube = Kube(ApiClient(await login()), timeout_s=30)
    answers: list[tuple[int, str]] = []
    for request in json.load(sys.stdin):
        try:
            await kube.call(**request)
            answers.append((200, ""))
        except KubeError as ex:
            answers.append((ex.status, ex.message))
    await kube.close()
    print(json.dumps(answers))


if __name__ == "__main__":
    asyncio.run(main())
