-- Completes items, in one statement, fenced: only rows still ASSIGNED under this worker and one of these tokens change. A zombie's completion
-- changes nothing. leased_by and lease_token stay, so that a repeat is recognised as one's own. Answers how many rows changed, and which only
-- where they are not all: one row of answer an item would cost the client as much as sending it.
-- A token belongs to one row of one lease, so that `= ANY` over both arrays is exact without pairing them; and the rows are found by primary
-- key alone. state and leased_by compare with IS NOT DISTINCT FROM because no index serves that: as a join, or through the index of ASSIGNED
-- rows (PostgreSQL 15 took it for the id alone when its plan was made on an empty queue),
-- a batch of n cost n × n comparisons, and under an old snapshot walked over every lease that the worker ever had.
WITH done AS (
UPDATE {table} AS t
   SET state = 'RESOLVED', resolved_at = clock_timestamp()
 WHERE t.id = ANY (%(ids)s::{id_type}[])
   AND t.state IS NOT DISTINCT FROM 'ASSIGNED'
   AND t.leased_by IS NOT DISTINCT FROM %(worker_id)s
   AND t.lease_token = ANY (%(tokens)s::uuid[])
RETURNING t.id
)
SELECT count(*) AS n, CASE WHEN count(*) < cardinality(%(ids)s::{id_type}[]) THEN array_agg(done.id) END AS ids FROM done
