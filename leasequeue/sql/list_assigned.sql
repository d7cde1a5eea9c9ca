-- Leased items by worker, from the index of leases.
SELECT t.*
  FROM {table} AS t
 WHERE t.state = 'ASSIGNED'
   AND (%(lane)s::text IS NULL OR t.lane = %(lane)s::text)
   AND (%(worker_id)s::text IS NULL OR t.leased_by = %(worker_id)s::text)
 ORDER BY t.leased_by, t.id
 LIMIT %(n)s::int
