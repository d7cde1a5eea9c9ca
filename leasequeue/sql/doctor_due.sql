-- The first due item of each priority, in claim order, and how long it has been due: skips from priority to priority in the claim index,
-- at most 100. {unlaned}: with strict lanes only items without a lane, which wait for nobody but a worker.
WITH RECURSIVE step (priority, id, since) AS (
    (SELECT c.priority, c.id, greatest(c.created_at, c.run_at) FROM {table} AS c
      WHERE c.state = 'PENDING' {unlaned} AND c.run_at <= clock_timestamp()
      ORDER BY -c.priority, c.created_at, c.id LIMIT 1)
    UNION ALL
    SELECT next.priority, next.id, next.since FROM step CROSS JOIN LATERAL (
        SELECT c.priority, c.id, greatest(c.created_at, c.run_at) AS since FROM {table} AS c
         WHERE c.state = 'PENDING' {unlaned} AND c.run_at <= clock_timestamp() AND -c.priority > -step.priority
         ORDER BY -c.priority, c.created_at, c.id LIMIT 1) AS next)
SELECT found.priority, found.id::text AS id,
       CASE WHEN isfinite(found.since) THEN extract(epoch FROM clock_timestamp() - found.since)::float8 ELSE 0 END AS due_s
  FROM (SELECT * FROM step LIMIT 100) AS found
