-- Locks the claimer's own worker row against a change of its cordon until the claim commits: whoever sets the cordon waits for
-- the claim under way, and no lease appears after the cordon committed. No row: the process must register again first. For claims whose
-- statement must see what was committed before this lock; claim.sql takes it itself, and asks this only when it found nothing.
SELECT coalesce(w.cordoned_until > clock_timestamp(), false) AS cordoned
  FROM leasequeue.worker AS w
 WHERE w.queue = %(queue)s AND w.worker_id = %(worker_id)s
   FOR SHARE
