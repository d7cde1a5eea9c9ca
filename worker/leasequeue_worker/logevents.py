"""The log events of a worker: what each says. The reference page is made from this, and every event that is logged is in here."""

from __future__ import annotations

LOG_EVENTS = {
    "item_leased": "A claim gave this item to this worker.",
    "item_resolved": "The item is completed; `resolved_at` by the database's clock, and `match_decision` where the table has it.",
    "item_retried": "It goes back for another attempt; `reason` where the worker stopped it.",
    "item_failed": "It is FAILED: its handler said so, or its attempts are used up.",
    "item_repair": "It is in REPAIR: a person must look.",
    "item_released": "It goes back without counting the attempt.",
    "item_completion_noop": "A verdict changed nothing: `outcome` is ALREADY_RESOLVED (a repeat) or LOST (the lease was taken back).",
    "item_lost": "A renewal found that the lease is no longer ours; the handler is cancelled.",
    "worker_started": "The process claims from now on.",
    "worker_ended": "The process exits; `held` leases are left to the reclaimer, none after a drain.",
    "drain": "A step of the way out, after SIGTERM: finishing, stopping, releasing, exit.",
    "handler_raised": "The handler raised: type and place, never the message, which goes to `last_error` alone.",
    "handler_ended_late": "A handler ended after its item had been given back.",
    "handler_abandoned": "A handler did not stop past maxRuntimeSeconds; its thread is left behind, its item is in REPAIR.",
    "too_many_abandoned_handlers": "Ten threads were left behind: the worker drains and makes way for a new process.",
    "max_runtime_exceeded": "An item ran longer than maxRuntimeSeconds; its handler is told to stop.",
    "lease_unconfirmed": "No renewal was answered until the lease's end; the handler is cancelled.",
    "renewal_unanswered": "A renewal got no answer; it is tried again until the leases end.",
    "completion_failed": "A write of verdicts failed; it is offered again.",
    "completion_unexpected_error": "A mistake in the completion thread; it goes on.",
    "item_result_refused": "The database refused one item's result or verdict; the item goes to REPAIR with the message.",
    "verdict_after_commit": "The handler said something after `ctx.transaction()` had resolved the item; it is ignored.",
    "claim_loop_trouble": "Claims fail, told once a kind of trouble; `kind` is busy, connection, schema, data or other.",
    "database_back": "Claims succeed again.",
    "unknown_leases_released": "Items were leased to this worker by claims whose answer was lost; they go back uncounted.",
    "claim_connection_ended": "The connection that listens for new items ended; the next turn opens another.",
    "not_deregistered": "The worker's row could not be removed on the way out; it goes stale and is swept.",
    "probes_unavailable": "The port of probes and metrics is taken; the worker goes on without.",
}
