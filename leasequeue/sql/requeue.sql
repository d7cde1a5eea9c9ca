-- Gives FAILED and REPAIR items a fresh start, and writes in the same statement who did it and why: no move without its audit row.
-- Items in any other state are left alone, so a requeue can never take an item from a worker that holds it.
-- Attempts and crashes start again at 0, since with the old counts the first stumble would end the item at once.
WITH picked AS MATERIALIZED (
    SELECT c.id, c.state
      FROM {table} AS c
     WHERE c.state = ANY (ARRAY['FAILED', 'REPAIR'])
       AND c.state = ANY (%(states)s::text[])
       AND (%(ids)s::{id_type}[] IS NULL OR c.id = ANY (%(ids)s::{id_type}[]))
     ORDER BY c.state, c.created_at, c.id
     LIMIT %(n)s::int
       FOR UPDATE
), moved AS (
    UPDATE {table} AS t
       SET state = 'PENDING', run_at = clock_timestamp(), attempt = 0, crash_count = 0,
           leased_by = NULL, leased_at = NULL, lease_expires_at = NULL, lease_token = NULL
      FROM picked
     WHERE t.id = picked.id AND t.state = picked.state
    RETURNING t.id, picked.state AS was
), logged AS (
    INSERT INTO leasequeue.audit (queue, item_id, actor, action, reason)
    SELECT %(queue)s, moved.id::text, %(actor)s, 'requeue from ' || moved.was, %(reason)s FROM moved
)
SELECT moved.id, moved.was FROM moved
