"""The Job that adopts or creates the table, for manageSchema Adopt and Create.

Its name hashes image, spec and Secret version: the same inputs make the same Job, so a failure is not repeated in a
tight loop (the Job retries with its own back-off and goes away after its ttl, then it is made again); other inputs make
another.
"""

from __future__ import annotations

import json
from typing import Any

from leasequeue_operator.plan import names, pod
from leasequeue_operator.plan.cronjob import job_template
from leasequeue_operator.plan.spec import Queue

COMPONENT = "schema"
BACKOFF_LIMIT = 4
ACTIVE_DEADLINE_S = 3600  # building indexes of a big table takes its time
TTL_S = 600


def build(
    queue: Queue, *, image: str, pull_policy: str, secret_version: str, pull_secrets: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The schema Job as it should be.

    Args:
        queue: its manageSchema is Adopt or Create.
        image: image with the `leasequeue` command.
        pull_policy: when the kubelet pulls it.
        secret_version: resourceVersion of the Secret the Job connects with.
        pull_secrets: names of image pull Secrets to add.
    """
    database = queue.spec.database
    secret = database.schema_secret_ref or database.secret_ref
    authority = database.ca_secret_ref
    tls = [database.ssl_mode, database.system_ca, authority and [authority.name, authority.key]]
    # Left out where nothing is set: another version of the operator must not make the Job again.
    inputs = json.dumps([image, command(queue), secret.name, secret.key, secret_version, *(tls if any(tls) else ())])
    container = {
        "name": "schema",
        "image": image,
        "imagePullPolicy": pull_policy,
        "command": [pod.literal(part) for part in command(queue)],
        "env": pod.environment(pod.defaults(), pod.variables(pod.connection_settings(database))),
        "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": pod.restricted(),
        "volumeMounts": pod.mounts(database),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": pod.metadata(queue, names.schema_job(queue.name, inputs), COMPONENT),
        "spec": {
            "backoffLimit": BACKOFF_LIMIT,
            "activeDeadlineSeconds": ACTIVE_DEADLINE_S,
            "ttlSecondsAfterFinished": TTL_S,
            "template": job_template(queue, COMPONENT, container, secret, pull_secrets),
        },
    }


def command(queue: Queue) -> list[str]:
    """The command line of the Job. `confirmTable` stands for naming the table explicitly."""
    database = queue.spec.database
    named = [f"--schema={database.schema_}", f"--table={database.table}"]
    strict = ["--strict-lanes"] if queue.spec.lease.lanes.strict else []
    if database.manage_schema == "Create":
        return ["leasequeue", "schema", "create", *named, *strict]
    return ["leasequeue", "schema", "adopt", *named, f"--confirm={database.confirm_table}", *strict]
