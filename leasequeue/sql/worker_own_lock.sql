-- Waits until no claim of this process is under way any more: a claim holds the row until its transaction has ended. After
-- a lost reply the old connection's claim may still be committing, and a look for its rows would come too early.
SELECT w.worker_id
  FROM leasequeue.worker AS w
 WHERE w.queue = %(queue)s AND w.worker_id = %(worker_id)s
   FOR UPDATE
