-- The newest runs of a queue, newest first.
SELECT r.* FROM leasequeue.reclaim_run AS r WHERE r.queue = %(queue)s ORDER BY r.id DESC LIMIT %(n)s::int
