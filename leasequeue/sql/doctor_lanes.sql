-- Lanes whose first unfinished item cannot run while due items wait behind it: the head, its state, and how many wait for how long.
-- Goes from lane to lane in the index of lane heads, at most 10,000 lanes; the waiting are counted to 1,000 a lane.
WITH RECURSIVE lanes (lane) AS (
    (SELECT c.lane FROM {table} AS c WHERE c.lane IS NOT NULL AND c.state <> 'RESOLVED' ORDER BY c.lane LIMIT 1)
    UNION ALL
    SELECT (SELECT c.lane FROM {table} AS c
             WHERE c.lane IS NOT NULL AND c.state <> 'RESOLVED' AND c.lane > lanes.lane ORDER BY c.lane LIMIT 1)
      FROM lanes WHERE lanes.lane IS NOT NULL)
SELECT wanted.lane, head.id::text AS id, head.state, behind.items AS waiting, behind.due_s
  FROM (SELECT lane FROM lanes WHERE lane IS NOT NULL LIMIT 10000) AS wanted
 CROSS JOIN LATERAL (
        SELECT c.id, c.state FROM {table} AS c
         WHERE c.lane = wanted.lane AND c.lane IS NOT NULL AND c.state <> 'RESOLVED'
         ORDER BY c.created_at, c.id LIMIT 1) AS head
 CROSS JOIN LATERAL (
        SELECT count(*) AS items, coalesce(max(extract(epoch FROM clock_timestamp() - waits.since)), 0)::float8 AS due_s
          FROM (SELECT greatest(c.created_at, c.run_at) AS since FROM {table} AS c
                 WHERE c.lane = wanted.lane AND c.lane IS NOT NULL AND c.state = 'PENDING' AND c.run_at <= clock_timestamp()
                   AND isfinite(c.created_at) AND isfinite(c.run_at)
                 LIMIT 1000) AS waits) AS behind
 WHERE head.state IN ('SCHEDULED', 'FAILED', 'REPAIR') AND behind.items > 0
 ORDER BY behind.due_s DESC LIMIT 1000
