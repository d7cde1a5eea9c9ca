-- Removes rows of processes that ended and folds their counters into the queue's, so that totals never fall. Without a worker_id: those not
-- seen for stale_s seconds that hold no lease.
WITH gone AS (
    DELETE FROM leasequeue.worker AS w
     WHERE w.queue = %(queue)s
       AND (w.worker_id = %(worker_id)s
            OR (%(worker_id)s::text IS NULL
                AND w.seen_at < clock_timestamp() - %(stale_s)s::float8 * interval '1 second'
                AND NOT EXISTS (SELECT 1 FROM {table} AS t WHERE t.state = 'ASSIGNED' AND t.leased_by = w.worker_id)))
    RETURNING w.claimed_total, w.finished_total, w.lost_total, w.busy_ms_total
)
INSERT INTO leasequeue.queue_stat AS s (queue, claimed_total, finished_total, lost_total, busy_ms_total)
SELECT %(queue)s, sum(claimed_total), sum(finished_total), sum(lost_total), sum(busy_ms_total) FROM gone HAVING count(*) > 0
ON CONFLICT (queue) DO UPDATE
   SET claimed_total = s.claimed_total + excluded.claimed_total,
       finished_total = s.finished_total + excluded.finished_total,
       lost_total = s.lost_total + excluded.lost_total,
       busy_ms_total = s.busy_ms_total + excluded.busy_ms_total
RETURNING 1 AS folded
