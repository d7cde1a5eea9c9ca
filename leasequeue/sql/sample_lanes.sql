-- Part of sample.sql where lanes are strict: PENDING rows in lanes, oldest of the due ones (epoch seconds), lanes whose head may be claimed
-- now, lanes blocked by a head that needs a person (FAILED, REPAIR), lanes whose head is not due yet, lanes with an item in flight.
-- Lanes are found by skipping through the index; a head costs one probe whatever its lane's length.
(WITH RECURSIVE lanes (lane) AS (
    (SELECT c.lane FROM {table} AS c WHERE c.lane IS NOT NULL AND c.state <> 'RESOLVED' ORDER BY c.lane LIMIT 1)
    UNION ALL
    SELECT (SELECT c.lane FROM {table} AS c WHERE c.lane IS NOT NULL AND c.state <> 'RESOLVED' AND c.lane > lanes.lane ORDER BY c.lane LIMIT 1)
      FROM lanes WHERE lanes.lane IS NOT NULL
), facts AS (
    SELECT head.state, head.run_at <= clock_timestamp() AS due, busy.busy, oldest.at
      FROM lanes
     CROSS JOIN LATERAL (SELECT EXISTS (SELECT 1 FROM {table} AS a WHERE a.lane = lanes.lane AND a.lane IS NOT NULL AND a.state = 'ASSIGNED') AS busy) AS busy
     CROSS JOIN LATERAL (SELECT (SELECT c.created_at FROM {table} AS c
                                  WHERE c.lane = lanes.lane AND c.lane IS NOT NULL AND c.state <> 'RESOLVED'
                                    AND c.state = 'PENDING' AND c.run_at <= clock_timestamp()
                                  ORDER BY c.created_at, c.id LIMIT 1) AS at) AS oldest
      LEFT JOIN LATERAL (SELECT c.state, c.run_at FROM {table} AS c
                          WHERE c.lane = lanes.lane AND c.lane IS NOT NULL AND c.state <> 'RESOLVED'
                            AND (NOT {pass} OR c.state IN ('PENDING', 'ASSIGNED'))
                          ORDER BY c.created_at, c.id LIMIT 1) AS head ON true
     WHERE lanes.lane IS NOT NULL
)
SELECT jsonb_build_object(
    'pending', (SELECT count(*) FROM (SELECT 1 FROM {table} AS c WHERE c.lane IS NOT NULL AND c.state = 'PENDING' LIMIT %(cap)s::int) AS x),
    'oldest', extract(epoch FROM min(nullif(nullif(facts.at, 'infinity'), '-infinity'))),
    'claimable', count(*) FILTER (WHERE facts.state = 'PENDING' AND facts.due AND NOT facts.busy),
    'blocked', count(*) FILTER (WHERE facts.state IN ('FAILED', 'REPAIR')),
    'later', count(*) FILTER (WHERE facts.state = 'SCHEDULED' OR (facts.state = 'PENDING' AND NOT facts.due)),
    'busy', count(*) FILTER (WHERE facts.busy))
   FROM facts)
