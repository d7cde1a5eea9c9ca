"""The log events of the reclaimer: what each says. The reference page is made from this, and every event that is logged is in here."""

from __future__ import annotations

LOG_EVENTS = {
    "item_lease_reclaimed": "A lease that ended was taken back; `state` is PENDING, or REPAIR after too many crashes.",
    "item_refuses_change": "The database lets nobody change this row (`verb`, `sqlstate`); the run passes it over.",
    "max_inflight_exceeded": "More items are ASSIGNED than max_inflight allows.",
    "run_ended": "What the whole run did.",
    "run_hung": "The run hung past its time; the process ends.",
    "sweep_failed": "A sweep failed; it is tried again while there is time.",
    "sweep_step_failed": "One step of a sweep failed (reclaim, promote, defer, prune, count); the others go on.",
    "tracing_unavailable": "Spans were asked for and cannot be sent: a library or the exporter is missing; the run goes on without.",
    "record_failed": "The run's record could not be closed.",
}
