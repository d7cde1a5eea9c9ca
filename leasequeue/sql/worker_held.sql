-- Counts the leases that the table itself shows for each of the named pods; a pod without a worker row or without leases shows 0.
SELECT given.uid AS pod_uid,
       (SELECT count(*) FROM leasequeue.worker AS w JOIN {table} AS t ON t.leased_by = w.worker_id AND t.state = 'ASSIGNED'
         WHERE w.queue = %(queue)s AND w.pod_uid = given.uid) AS held
  FROM unnest(%(pod_uids)s::text[]) AS given (uid)
