-- What the control schema remembers of a queue: its adoption, the last good sweep, the last run of the reclaimer.
SELECT v.applied_at AS adopted_at, s.swept_at,
       extract(epoch FROM clock_timestamp() - s.swept_at)::float8 AS swept_s,
       r.started_at AS run_started_at, r.finished_at AS run_finished_at, r.max_inflight AS run_max_inflight,
       r.error IS NOT NULL AS run_failed,
       extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::float8 AS server_up_s
  FROM (SELECT %(queue)s::oid AS queue) AS wanted
  LEFT JOIN leasequeue.schema_version AS v ON v.queue = wanted.queue
  LEFT JOIN leasequeue.queue_stat AS s ON s.queue = wanted.queue
  LEFT JOIN LATERAL (
        SELECT run.started_at, run.finished_at, run.max_inflight, run.error FROM leasequeue.reclaim_run AS run
         WHERE run.queue = wanted.queue ORDER BY run.id DESC LIMIT 1) AS r ON true
