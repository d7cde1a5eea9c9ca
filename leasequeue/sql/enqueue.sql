-- Adds items, in the order given, with strictly increasing created_at: one reading of the clock plus one microsecond a row (rows of one
-- call that tie would fall back to a random uuid). A key that exists already, committed or not, is left alone: DO NOTHING waits for
-- the other transaction, adds nothing, and enqueue_existing.sql then reads the winner. Other unique violations are errors.
-- Rows travel as JSON text and each value goes through its column's own input function: no digit of a number is lost on the way.
WITH start AS MATERIALIZED (SELECT clock_timestamp() AS at)
INSERT INTO {table} AS t ({columns}, state, created_at)
SELECT {values},
       CASE WHEN {run_at} > clock_timestamp() THEN 'SCHEDULED' ELSE 'PENDING' END,
       start.at + given.ord * interval '1 microsecond'
  FROM start
 CROSS JOIN json_array_elements(%(rows)s::json) WITH ORDINALITY AS given (item, ord)
 CROSS JOIN LATERAL json_populate_record(NULL::{table}, given.item) AS r
 ORDER BY given.ord
ON CONFLICT (idempotency_key) DO NOTHING
RETURNING t.id, t.idempotency_key, t.created_at
