-- Says that the process lives, and carries its cumulative counters. No row back: the process must register again.
UPDATE leasequeue.worker AS w
   SET seen_at = clock_timestamp(), held = %(held)s::int, running = %(running)s::int,
       claimed_total = %(claimed_total)s::bigint, finished_total = %(finished_total)s::bigint,
       lost_total = %(lost_total)s::bigint, busy_ms_total = %(busy_ms_total)s::bigint
 WHERE w.queue = %(queue)s AND w.worker_id = %(worker_id)s
RETURNING coalesce(w.cordoned_until > clock_timestamp(), false) AS cordoned
