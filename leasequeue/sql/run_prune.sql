-- Forgets run records beyond the newest n of a queue.
DELETE FROM leasequeue.reclaim_run AS r
 WHERE r.queue = %(queue)s
   AND r.id < (SELECT min(kept.id) FROM (SELECT k.id FROM leasequeue.reclaim_run AS k WHERE k.queue = %(queue)s ORDER BY k.id DESC LIMIT %(n)s::int) AS kept)
RETURNING r.id
