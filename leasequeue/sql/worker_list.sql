-- The processes of a queue, each with the number of leases that the table itself shows for it.
SELECT w.worker_id, w.pod_uid, w.pod_name, w.slots, w.held, w.running, w.claimed_total, w.finished_total, w.lost_total, w.busy_ms_total,
       w.started_at, w.seen_at, extract(epoch FROM clock_timestamp() - w.seen_at)::float8 AS unseen_s,
       coalesce(w.cordoned_until > clock_timestamp(), false) AS cordoned,
       (SELECT count(*) FROM {table} AS t WHERE t.state = 'ASSIGNED' AND t.leased_by = w.worker_id) AS leases
  FROM leasequeue.worker AS w
 WHERE w.queue = %(queue)s
 ORDER BY w.started_at, w.worker_id
