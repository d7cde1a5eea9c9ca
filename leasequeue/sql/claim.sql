-- Leases up to n due rows to one worker, in the order priority DESC, created_at, id.
-- Forbids: two workers holding one row (row locks, SKIP LOCKED, state rechecked under the lock); more than n rows (the inner SELECT
-- runs once, as an array: in the form `IN (… LIMIT)` a nested loop may run it again per row and lock the whole table); a lease that is
-- short at birth (clock_timestamp(), not the transaction's start); one token for two leases (90 random bits a claim, the row's number in it).
-- The rows are searched in segments of the claim order, so that a process resumes where its last claim ended instead of walking over
-- dead index entries again. Segments are disjoint and in claim order; without a mark there is one, the whole range.
-- Locks the claimer's own worker row against a change of its cordon before it looks for rows, until the claim commits: whoever sets the
-- cordon waits for the claim under way, and no lease appears after the cordon committed. A cordon that this waited for is seen, since the
-- row is judged anew under its lock. max_inflight, where given, is exact under the lock of claim_ceiling.sql.
UPDATE {table} AS t
   SET state = 'ASSIGNED',
       leased_by = %(worker_id)s,
       leased_at = clock_timestamp(),
       lease_expires_at = clock_timestamp() + %(lease_ms)s::int * interval '1 millisecond',
       lease_token = ((SELECT left(gen_random_uuid()::text, 28)) || to_hex(268435456 + leased.n))::uuid,
       attempt = t.attempt + 1
  FROM unnest(ARRAY(
        SELECT picked.id
          FROM unnest(%(after_neg)s::int[], %(after_at)s::timestamptz[], %(after_id)s::{id_type}[], %(upto_neg)s::int[])
                 AS segment (after_neg, after_at, after_id, upto_neg)
         CROSS JOIN LATERAL (
                SELECT c.id
                  FROM {table} AS c
                 WHERE c.state = 'PENDING'
                   AND (-c.priority, c.created_at, c.id) > (segment.after_neg, segment.after_at, segment.after_id)
                   AND -c.priority <= segment.upto_neg
                   AND c.run_at <= clock_timestamp()
                   AND c.id <> ALL (%(skip)s::{id_type}[])
                 ORDER BY -c.priority, c.created_at, c.id
                 LIMIT %(n)s::int
                   FOR UPDATE SKIP LOCKED) AS picked
         WHERE NOT %(registered)s::boolean
            OR EXISTS (SELECT 1
                         FROM leasequeue.worker AS w
                        WHERE w.queue = %(queue)s AND w.worker_id = %(worker_id)s
                          AND (w.cordoned_until IS NULL OR w.cordoned_until <= clock_timestamp())
                          FOR SHARE)
         LIMIT CASE WHEN %(max_inflight)s::int IS NULL THEN %(n)s::bigint
                    ELSE least(%(n)s::bigint, greatest(0, %(max_inflight)s::int - (
                           SELECT count(*) FROM {table} AS a WHERE a.state = 'ASSIGNED')))
               END)) WITH ORDINALITY AS leased (id, n)
 WHERE t.id = leased.id
RETURNING t.*
