-- Sets (or, with 0 seconds, lifts) the cordon of the named pods' processes, on the database's clock. Waits for claims under way, which hold
-- their worker row FOR SHARE; when it has committed, no lease of these processes can appear until the cordon lapses.
UPDATE leasequeue.worker AS w
   SET cordoned_until = CASE WHEN %(seconds)s::float8 > 0 THEN clock_timestamp() + %(seconds)s::float8 * interval '1 second' END
 WHERE w.queue = %(queue)s AND w.pod_uid = ANY (%(pod_uids)s::text[])
RETURNING w.worker_id, w.pod_uid
