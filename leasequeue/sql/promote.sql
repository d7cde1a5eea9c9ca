-- Moves one page of due SCHEDULED rows to PENDING. Any number of processes may do so at once: locked rows are skipped.
-- The clock is read once, in a subquery: compared directly, a volatile function is no Index Cond and every row not yet due was looked at.
UPDATE {table} AS t
   SET state = 'PENDING'
 WHERE t.id = ANY (ARRAY(
        SELECT c.id FROM {table} AS c
         WHERE c.state = 'SCHEDULED' AND c.run_at <= (SELECT clock_timestamp())
           AND c.id <> ALL (%(skip)s::{id_type}[])
         ORDER BY c.run_at, c.id
         LIMIT %(n)s::int
           FOR UPDATE SKIP LOCKED))
RETURNING t.id
