-- One row of facts about one queue, read-only. Each part is answered from a partial index, whatever the number of RESOLVED rows; PENDING and
-- SCHEDULED are counted up to a cap. The oldest item is the oldest of all due rows, not the head of the priority order, which may be young.
-- Where lanes are strict, the claim index holds the rows without a lane alone: the others are counted lane by lane (sample_lanes.sql).
-- RESOLVED is counted exactly while the table is small and taken from the planner's statistics after that.
SELECT %(queue_{n})s::oid AS queue,
       clock_timestamp() AS now,
       (SELECT count(*) FROM (SELECT 1 FROM {table} AS c WHERE c.state = 'PENDING'{unlaned} LIMIT %(cap)s::int) AS x) AS pending,
       {lane_facts} AS lane_facts,
       (SELECT count(*) FROM {table} AS c WHERE c.state = 'ASSIGNED') AS assigned,
       (SELECT count(*) FROM {table} AS c WHERE c.state = 'ASSIGNED' AND c.lease_expires_at < clock_timestamp()) AS expired,
       (SELECT min(c.lease_expires_at) FROM {table} AS c WHERE c.state = 'ASSIGNED' AND c.lease_expires_at < clock_timestamp()) AS oldest_expired_at,
       (SELECT count(*) FROM (SELECT 1 FROM {table} AS c WHERE c.state = 'SCHEDULED' LIMIT %(cap)s::int) AS x) AS scheduled,
       (SELECT count(*) FROM (SELECT 1 FROM {table} AS c WHERE c.state = 'SCHEDULED' AND c.run_at <= clock_timestamp() LIMIT %(cap)s::int) AS x) AS scheduled_due,
       (SELECT min(c.run_at) FROM {table} AS c WHERE c.state = 'SCHEDULED') AS next_due_at,
       (SELECT count(*) FROM {table} AS c WHERE c.state IN ('FAILED', 'REPAIR') AND c.state = 'FAILED') AS failed,
       (SELECT count(*) FROM {table} AS c WHERE c.state IN ('FAILED', 'REPAIR') AND c.state = 'REPAIR') AS repair,
       CASE WHEN pg_relation_size(%(queue_{n})s::oid::regclass) < 67108864
            THEN (SELECT count(*) FROM {table} AS c WHERE c.state = 'RESOLVED') END AS resolved_exact,
       (SELECT k.reltuples::bigint FROM pg_catalog.pg_class AS k WHERE k.oid = %(queue_{n})s::oid) AS rows_estimate,
       (WITH RECURSIVE step (neg, oldest) AS (
            (SELECT -c.priority, c.created_at FROM {table} AS c
              WHERE c.state = 'PENDING'{unlaned} AND c.run_at <= clock_timestamp()
              ORDER BY -c.priority, c.created_at, c.id LIMIT 1)
            UNION ALL
            SELECT next.neg, next.created_at FROM step CROSS JOIN LATERAL (
                SELECT -c.priority AS neg, c.created_at FROM {table} AS c
                 WHERE c.state = 'PENDING'{unlaned} AND c.run_at <= clock_timestamp() AND -c.priority > step.neg
                 ORDER BY -c.priority, c.created_at, c.id LIMIT 1) AS next)
        SELECT min(limited.oldest) FROM (SELECT oldest FROM step LIMIT 1000) AS limited) AS oldest_pending_at,
       s.claimed_total, s.finished_total, s.lost_total, s.busy_ms_total, s.reclaimed_total, s.repaired_total, s.swept_at,
       w.workers, w.workers_busy, w.workers_cordoned, w.held,
       w.claimed AS live_claimed, w.finished AS live_finished, w.lost AS live_lost, w.busy_ms AS live_busy_ms
  FROM (SELECT 1) AS one
  LEFT JOIN leasequeue.queue_stat AS s ON s.queue = %(queue_{n})s::oid
  CROSS JOIN (SELECT count(*) FILTER (WHERE live) AS workers,
                     count(*) FILTER (WHERE live AND running > 0) AS workers_busy,
                     count(*) FILTER (WHERE live AND cordoned_until > clock_timestamp()) AS workers_cordoned,
                     coalesce(sum(held) FILTER (WHERE live), 0)::bigint AS held,
                     coalesce(sum(claimed_total), 0)::bigint AS claimed, coalesce(sum(finished_total), 0)::bigint AS finished,
                     coalesce(sum(lost_total), 0)::bigint AS lost, coalesce(sum(busy_ms_total), 0)::bigint AS busy_ms
                FROM (SELECT seen.*, seen.seen_at > clock_timestamp() - interval '30 seconds' AS live
                        FROM leasequeue.worker AS seen WHERE seen.queue = %(queue_{n})s::oid) AS counted) AS w
