-- Leases up to n due rows where lanes are strict: the head of each locked lane that has no ASSIGNED row, and rows without a lane.
-- Forbids: a row leased before an earlier row of its lane is done; two rows of a lane leased at a time. The lanes given are held by
-- lane_lock.sql in this transaction; the heads are looked up again here, under a fresh snapshot, never from a keyset mark.
UPDATE {table} AS t
   SET state = 'ASSIGNED',
       leased_by = %(worker_id)s,
       leased_at = clock_timestamp(),
       lease_expires_at = clock_timestamp() + %(lease_ms)s::int * interval '1 millisecond',
       lease_token = ((SELECT left(gen_random_uuid()::text, 28)) || to_hex(268435456 + leased.n))::uuid,
       attempt = t.attempt + 1
  FROM unnest(ARRAY(
        SELECT picked.id
          FROM (
            SELECT locked.id, locked.priority, locked.created_at
              FROM unnest(%(lanes)s::text[]) AS held (lane)
             CROSS JOIN LATERAL (
                    SELECT c.id, c.state, c.run_at
                      FROM {table} AS c
                     WHERE c.lane = held.lane AND c.lane IS NOT NULL AND c.state <> 'RESOLVED'
                       AND (NOT %(pass)s::boolean OR (c.state IN ('PENDING', 'ASSIGNED') AND c.id <> ALL (%(skip)s::{id_type}[])))
                     ORDER BY c.created_at, c.id
                     LIMIT 1) AS head
             CROSS JOIN LATERAL (
                    SELECT c.id, c.priority, c.created_at
                      FROM {table} AS c
                     WHERE c.id = head.id AND c.state = 'PENDING'
                       FOR UPDATE SKIP LOCKED) AS locked
             WHERE head.state = 'PENDING' AND head.run_at <= clock_timestamp()
               AND head.id <> ALL (%(skip)s::{id_type}[])
               AND NOT EXISTS (SELECT 1 FROM {table} AS a
                                WHERE a.lane = held.lane AND a.lane IS NOT NULL AND a.state = 'ASSIGNED')
            UNION ALL
            SELECT free.id, free.priority, free.created_at
              FROM (SELECT c.id, c.priority, c.created_at
                      FROM {table} AS c
                     WHERE c.state = 'PENDING' AND c.lane IS NULL AND c.run_at <= clock_timestamp()
                       AND %(unlaned)s::boolean
                       AND c.id <> ALL (%(skip)s::{id_type}[])
                     ORDER BY -c.priority, c.created_at, c.id
                     LIMIT %(n)s::int
                       FOR UPDATE SKIP LOCKED) AS free
          ) AS picked
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
