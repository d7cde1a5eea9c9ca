"""The kinds of objects the operator deals with, and their paths in the API."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind.

    Args:
        api_version: group/version, or v1.
        name: the kind.
        plural: its name in paths.
    """

    api_version: str
    name: str
    plural: str

    @property
    def group(self) -> str:
        """API group, empty for the core group."""
        return self.api_version.partition("/")[0] if "/" in self.api_version else ""

    def path(self, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        """Path of the collection, an object or its subresource. No namespace: all namespaces."""
        root = f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        parts = [root, *(["namespaces", namespace] if namespace else []), self.plural]
        return "/".join([*parts, *(part for part in (name, subresource) if part)])


LEASE_QUEUE = Kind("leasequeue.dev/v1alpha1", "LeaseQueue", "leasequeues")
DEPLOYMENT = Kind("apps/v1", "Deployment", "deployments")
CRON_JOB = Kind("batch/v1", "CronJob", "cronjobs")
JOB = Kind("batch/v1", "Job", "jobs")
POD = Kind("v1", "Pod", "pods")
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount", "serviceaccounts")
SECRET = Kind("v1", "Secret", "secrets")
EVENT = Kind("v1", "Event", "events")
POD_MONITOR = Kind("monitoring.coreos.com/v1", "PodMonitor", "podmonitors")
AUTOSCALER = Kind("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
LEASE = Kind("coordination.k8s.io/v1", "Lease", "leases")
ACCESS_REVIEW = Kind("authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews")

# Watched by kopf, with our label; the others are read when needed.
WATCHED_CHILDREN = (DEPLOYMENT, CRON_JOB, JOB, POD)
BY_NAME = {
    kind.name: kind for kind in (LEASE_QUEUE, *WATCHED_CHILDREN, SERVICE_ACCOUNT, SECRET, EVENT, POD_MONITOR, AUTOSCALER)
}
