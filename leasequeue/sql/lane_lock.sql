-- Chooses up to n lanes whose head may be claimed, in the order of their heads, and holds each by a transaction advisory lock.
-- A statement of its own: the claim that follows takes its snapshot after the locks are held, so it sees what the previous holder of a
-- lane committed. In one statement two workers saw the same head, or a head and its successor (8 violations in 1,677 claims).
-- A lane that somebody else holds is passed over at once. Lanes are found by skipping from lane to lane in the index, whatever their length.
-- The advisory key is a hash of table and lane: two lanes with one hash only pass each other over for a moment.
WITH RECURSIVE lanes (lane) AS (
    (SELECT c.lane FROM {table} AS c
      WHERE c.lane IS NOT NULL AND c.state <> 'RESOLVED' AND %(lanes)s::text[] IS NULL
      ORDER BY c.lane LIMIT 1)
    UNION ALL
    SELECT (SELECT c.lane FROM {table} AS c
             WHERE c.lane IS NOT NULL AND c.state <> 'RESOLVED' AND c.lane > lanes.lane
             ORDER BY c.lane LIMIT 1)
      FROM lanes
     WHERE lanes.lane IS NOT NULL
), wanted AS MATERIALIZED (
    SELECT lane FROM lanes WHERE lane IS NOT NULL
    UNION ALL
    SELECT DISTINCT lane FROM unnest(%(lanes)s::text[]) AS given (lane)
), heads AS MATERIALIZED (
    SELECT wanted.lane, head.priority, head.created_at, head.id
      FROM wanted
     CROSS JOIN LATERAL (
            SELECT c.id, c.state, c.run_at, c.priority, c.created_at
              FROM {table} AS c
             WHERE c.lane = wanted.lane AND c.lane IS NOT NULL AND c.state <> 'RESOLVED'
               AND (NOT %(pass)s::boolean OR c.state IN ('PENDING', 'ASSIGNED'))
             ORDER BY c.created_at, c.id
             LIMIT 1) AS head
     WHERE head.state = 'PENDING' AND head.run_at <= clock_timestamp()
     ORDER BY -head.priority, head.created_at, head.id
)
SELECT heads.lane
  FROM heads
 WHERE pg_try_advisory_xact_lock(hashtextextended(heads.lane, %(queue)s::bigint))
 LIMIT %(n)s::int
