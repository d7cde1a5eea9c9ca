-- SCHEDULED items, the next due first.
SELECT t.*
  FROM {table} AS t
 WHERE t.state = 'SCHEDULED'
   AND (%(lane)s::text IS NULL OR t.lane = %(lane)s::text)
   AND (%(worker_id)s::text IS NULL OR t.leased_by = %(worker_id)s::text)
 ORDER BY t.run_at, t.id
 LIMIT %(n)s::int
