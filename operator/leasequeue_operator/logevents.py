"""The log events of the operator: what each says. The reference page is made from this, and every event that is logged is in here."""

from __future__ import annotations

LOG_EVENTS = {
    "operator_started": "It serves its namespaces from now on.",
    "operator_waits": "It cannot start yet: a right, the CustomResourceDefinition or the API server is missing.",
    "standing_by": "Another replica holds the Lease and acts; this one waits.",
    "lease_acquired": "This replica acts from now on.",
    "lease_not_renewed": "The Lease could not be read or renewed; without it the replica stops acting.",
    "lease_not_released": "The Lease could not be given up on the way out; the other replica waits until it ends.",
    "rights_not_known": "The API server did not say which rights the operator has.",
    "right_missing": "The operator lacks a right that it needs; `fatal`: it serves nobody until it has it.",
    "right_granted": "A right that lacked is there.",
    "transition": "A condition changed, or workers were scaled: the same as the Kubernetes event.",
    "event_lost": "The API server did not take an event.",
    "reconcile_failed": "The API server refused or did not answer; tried again with back-off.",
    "reconcile_crashed": "A mistake of the operator with one queue, with its traceback; the others go on.",
    "queue_not_measured": "A mistake of the operator with one queue's metrics: its series are missing, the others' are there.",
    "watches_ended": "The API server refused a watch in a way that ends all of them; they are begun anew, lists go on meanwhile.",
    "resync_failed": "A full list failed; the next one comes.",
    "table_taken_over": "The LeaseQueue that owned the table is gone, and so are its workers: this one owns it now.",
    "owner_not_released": "A deleted LeaseQueue's ownership of its table could not be removed; a later one takes over.",
    "cordon_failed": "Workers could not be cordoned or freed; tried again at the next look.",
    "listening_failed": "The connection that hears of new items broke; queues are polled until it is back.",
    "not_listening": "A transaction pooler stands between: queues are polled alone.",
    "shrink_began": "The fleet is to become smaller; `victims` workers finish what they hold first.",
    "busy_workers_cut_off": "Workers did not finish within the drain limit; their leases end with them.",
}
