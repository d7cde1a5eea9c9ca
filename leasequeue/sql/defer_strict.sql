-- As defer.sql, where lanes are strict and the claim index holds rows without a lane only: the first n of those, and the head of each lane.
-- A row of the future behind its lane's head harms nobody until it gets there.
UPDATE {table} AS t
   SET state = 'SCHEDULED'
 WHERE t.id = ANY (ARRAY(
        WITH RECURSIVE lanes (lane) AS (
            (SELECT c.lane FROM {table} AS c WHERE c.lane IS NOT NULL AND c.state <> 'RESOLVED' ORDER BY c.lane LIMIT 1)
            UNION ALL
            SELECT (SELECT c.lane FROM {table} AS c
                     WHERE c.lane IS NOT NULL AND c.state <> 'RESOLVED' AND c.lane > lanes.lane
                     ORDER BY c.lane LIMIT 1)
              FROM lanes
             WHERE lanes.lane IS NOT NULL
        ), near (id) AS MATERIALIZED (
            (SELECT c.id FROM {table} AS c
              WHERE c.state = 'PENDING' AND c.lane IS NULL
              ORDER BY -c.priority, c.created_at, c.id
              LIMIT %(n)s::int)
            UNION ALL
            SELECT head.id
              FROM lanes
             CROSS JOIN LATERAL (
                    SELECT c.id FROM {table} AS c
                     WHERE c.lane = lanes.lane AND c.lane IS NOT NULL AND c.state <> 'RESOLVED' AND c.state IN ('PENDING', 'ASSIGNED')
                     ORDER BY c.created_at, c.id
                     LIMIT 1) AS head
        )
        SELECT locked.id
          FROM near
         CROSS JOIN LATERAL (
                SELECT c.id FROM {table} AS c
                 WHERE c.id = near.id AND c.state = 'PENDING' AND c.run_at > clock_timestamp()
                   AND c.id <> ALL (%(skip)s::{id_type}[])
                   FOR UPDATE SKIP LOCKED) AS locked
         LIMIT %(n)s::int))
RETURNING t.id
