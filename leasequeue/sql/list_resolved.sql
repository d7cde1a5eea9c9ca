-- Finished items in no order: an order would need an index that every completion writes to.
SELECT t.*
  FROM {table} AS t
 WHERE t.state = 'RESOLVED'
   AND (%(lane)s::text IS NULL OR t.lane = %(lane)s::text)
   AND (%(worker_id)s::text IS NULL OR t.leased_by = %(worker_id)s::text)
 LIMIT %(n)s::int
