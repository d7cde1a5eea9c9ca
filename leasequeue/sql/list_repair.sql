-- Items that wait for a person, the oldest first.
SELECT t.*
  FROM {table} AS t
 WHERE t.state = ANY (ARRAY['FAILED', 'REPAIR']) AND t.state = 'REPAIR'
   AND (%(lane)s::text IS NULL OR t.lane = %(lane)s::text)
   AND (%(worker_id)s::text IS NULL OR t.leased_by = %(worker_id)s::text)
 ORDER BY t.created_at, t.id
 LIMIT %(n)s::int
