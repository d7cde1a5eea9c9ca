-- Adds a process's row, or refreshes it when it already stands. A process in a cordoned pod inherits the cordon.
INSERT INTO leasequeue.worker AS w (queue, worker_id, pod_uid, pod_name, slots, cordoned_until)
SELECT %(queue)s, %(worker_id)s, %(pod_uid)s, %(pod_name)s, %(slots)s::int,
       (SELECT max(other.cordoned_until) FROM leasequeue.worker AS other
         WHERE other.queue = %(queue)s AND other.pod_uid = %(pod_uid)s)
ON CONFLICT (queue, worker_id) DO UPDATE SET seen_at = clock_timestamp(), slots = excluded.slots
RETURNING coalesce(w.cordoned_until > clock_timestamp(), false) AS cordoned
