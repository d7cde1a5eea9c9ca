"""What can decide a number of workers, as status, metric and event name it. The reference page is made from this."""

from __future__ import annotations

LIMITERS = {
    "idle": "Nothing waits, nothing runs.",
    "in_sight": "As many as there is work in sight for.",
    "rate": "The arrivals at the measured service time, with a margin for chance.",
    "drain": "The backlog, within drainTargetSeconds.",
    "latency": "The backlog, sooner than that: the oldest item nears latencyTargetSeconds.",
    "in_flight": "Items that run: no slot goes away under one.",
    "min_replicas": "scaling.minReplicas.",
    "max_replicas": "scaling.maxReplicas.",
    "schedule": "A schedule's bound; status and event add its name: schedule:NAME.",
    "max_inflight": "As many slots as lease.maxInflight lets work.",
    "stale_leases": "The same, filled by expired leases: see ReclaimerHealthy.",
    "step_up": "On the way up: at most doubled, or ten more, in 15 s.",
    "step_down": "On the way down: at most half of them in a step of 4 s.",
    "stabilization": "A lower need has not lasted for scaleDownStabilizationSeconds.",
    "database_error": "Held: the database gave no sample.",
    "stale_sample": "Held: the newest sample is too old.",
    "manual": "scaling.mode Manual: spec.replicas.",
    "suspend": "spec.suspend: zero.",
}
