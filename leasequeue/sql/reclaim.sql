-- Takes back one page of leases that ended more than reclaim_after ago: to PENDING, or to REPAIR once the item was reclaimed max_crashes times.
-- Forbids: tearing a row from a worker that renewed, finished or leased it meanwhile. State, owner, token and expiry are repeated in the
-- UPDATE, under the row lock; tokens and owners compare with IS NOT DISTINCT FROM, since leases of plain-SQL clients have no token.
-- Locked rows are skipped (their owner is at work on them). Never waits for free capacity. On the database's clock alone.
-- Not before one lease duration and 15 s have passed since the server started: workers get to renew first.
WITH stale AS MATERIALIZED (
    SELECT c.id, c.leased_by, c.lease_token, c.lease_expires_at
      FROM {table} AS c
     WHERE c.state = 'ASSIGNED'
       AND c.lease_expires_at < clock_timestamp() - %(reclaim_after_s)s::float8 * interval '1 second'
       AND clock_timestamp() >= pg_postmaster_start_time() + (%(lease_ms)s::int + 15000) * interval '1 millisecond'
       AND c.id <> ALL (%(skip)s::{id_type}[])
     LIMIT %(n)s::int
       FOR UPDATE SKIP LOCKED
)
UPDATE {table} AS t
   SET state = CASE WHEN t.crash_count + 1 >= %(max_crashes)s::int THEN 'REPAIR' ELSE 'PENDING' END,
       crash_count = t.crash_count + 1,
       last_error = 'lease of ' || stale.leased_by || ' ended at ' || stale.lease_expires_at || ' without a completion',
       leased_by = NULL, leased_at = NULL, lease_expires_at = NULL, lease_token = NULL
  FROM stale
 WHERE t.id = stale.id
   AND t.state = 'ASSIGNED'
   AND t.leased_by IS NOT DISTINCT FROM stale.leased_by
   AND t.lease_token IS NOT DISTINCT FROM stale.lease_token
   AND t.lease_expires_at = stale.lease_expires_at
RETURNING t.id, t.state, stale.leased_by, t.trace_id, t.source_hash, t.idempotency_key, t.attempt, t.crash_count
