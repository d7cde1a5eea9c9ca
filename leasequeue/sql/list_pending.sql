-- PENDING items in claim order, from the claim index.
SELECT t.*
  FROM {table} AS t
 WHERE t.state = 'PENDING'
   AND (%(lane)s::text IS NULL OR t.lane = %(lane)s::text)
   AND (%(worker_id)s::text IS NULL OR t.leased_by = %(worker_id)s::text)
 ORDER BY -t.priority, t.created_at, t.id
 LIMIT %(n)s::int
