-- Writes the figures of a run so far, and closes it when it is over. Idempotent: figures are totals of the run.
UPDATE leasequeue.reclaim_run AS r
   SET finished_at = CASE WHEN %(over)s::boolean THEN clock_timestamp() END,
       sweeps = %(sweeps)s, reclaimed = %(reclaimed)s, repaired = %(repaired)s, promoted = %(promoted)s, deferred = %(deferred)s,
       pruned = %(pruned)s, assigned = %(assigned)s, exceeded = %(exceeded)s, error = %(error)s
 WHERE r.id = %(id)s
RETURNING r.id
