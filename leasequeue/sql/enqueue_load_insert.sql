-- Inserts the loaded rows of one shape (one set of columns), in the order they were given. {conflict} is DO NOTHING on the key, or nothing.
INSERT INTO {table} AS t ({columns}, state, created_at)
SELECT {values},
       CASE WHEN {run_at} > clock_timestamp() THEN 'SCHEDULED' ELSE 'PENDING' END,
       %(start)s::timestamptz + given.ord * interval '1 microsecond'
  FROM pg_temp.leasequeue_load AS given
 CROSS JOIN LATERAL json_populate_record(NULL::{table}, given.item) AS r
 WHERE given.shape = %(shape)s
 ORDER BY given.ord
{conflict}
