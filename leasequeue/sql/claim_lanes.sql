-- Leases up to n due rows of the named lanes (lanes as plain labels, no order between rows of one lane), in claim order.
-- The best n rows of each lane are candidates; the outer SELECT locks the best n of all and rechecks their state under the lock.
UPDATE {table} AS t
   SET state = 'ASSIGNED',
       leased_by = %(worker_id)s,
       leased_at = clock_timestamp(),
       lease_expires_at = clock_timestamp() + %(lease_ms)s::int * interval '1 millisecond',
       lease_token = ((SELECT left(gen_random_uuid()::text, 28)) || to_hex(268435456 + leased.n))::uuid,
       attempt = t.attempt + 1
  FROM unnest(ARRAY(
        SELECT picked.id
          FROM unnest(%(lanes)s::text[]) AS wanted (lane)
         CROSS JOIN LATERAL (
                SELECT c.id, c.priority, c.created_at
                  FROM {table} AS c
                 WHERE c.lane = wanted.lane AND c.lane IS NOT NULL AND c.state = 'PENDING'
                   AND c.run_at <= clock_timestamp()
                   AND c.id <> ALL (%(skip)s::{id_type}[])
                 ORDER BY -c.priority, c.created_at, c.id
                 LIMIT %(n)s::int
                   FOR UPDATE SKIP LOCKED) AS picked
         WHERE NOT %(registered)s::boolean
            OR EXISTS (SELECT 1
                         FROM leasequeue.worker AS w
                        WHERE w.queue = %(queue)s AND w.worker_id = %(worker_id)s
                          AND (w.cordoned_until IS NULL OR w.cordoned_until <= clock_timestamp()))
         ORDER BY -picked.priority, picked.created_at, picked.id
         LIMIT CASE WHEN %(max_inflight)s::int IS NULL THEN %(n)s::bigint
                    ELSE least(%(n)s::bigint, greatest(0, %(max_inflight)s::int - (
                           SELECT count(*) FROM {table} AS a WHERE a.state = 'ASSIGNED')))
               END)) WITH ORDINALITY AS leased (id, n)
 WHERE t.id = leased.id
RETURNING t.*
