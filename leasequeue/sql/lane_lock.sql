-- Chooses up to n lanes whose head may be claimed, in the order of their heads, and holds each by a transaction advisory lock.
-- A statement of its own: the claim that follows takes its snapshot after the locks are held, so it sees what the previous holder of a
-- lane committed. In one statement two workers saw the same head, or a head and its successor (8 violations in 1,677 claims).
-- A lane that somebody else holds is passed over at once. Lanes are found by skipping from head to head in the index, one probe a lane whatever its length.
-- Beside them come up to `ahead` lanes that follow in the order, not held: whoever claims again at once may try those, without the walk.
-- The advisory key is a hash of table and lane: two lanes with one hash only pass each other over for a moment.
WITH RECURSIVE found (lane, state, run_at, priority, created_at, id) AS (
    (SELECT c.lane, c.state, c.run_at, c.priority, c.created_at, c.id
       FROM {table} AS c
      WHERE c.lane IS NOT NULL AND c.state <> 'RESOLVED' AND %(lanes)s::text[] IS NULL
        AND (NOT %(pass)s::boolean OR (c.state IN ('PENDING', 'ASSIGNED') AND c.id <> ALL (%(skip)s::{id_type}[])))
      ORDER BY c.lane, c.created_at, c.id LIMIT 1)
    UNION ALL
    SELECT next.lane, next.state, next.run_at, next.priority, next.created_at, next.id
      FROM found
     CROSS JOIN LATERAL (
            SELECT c.lane, c.state, c.run_at, c.priority, c.created_at, c.id
              FROM {table} AS c
             WHERE c.lane IS NOT NULL AND c.state <> 'RESOLVED' AND c.lane > found.lane
               AND (NOT %(pass)s::boolean OR (c.state IN ('PENDING', 'ASSIGNED') AND c.id <> ALL (%(skip)s::{id_type}[])))
             ORDER BY c.lane, c.created_at, c.id LIMIT 1) AS next
), heads AS MATERIALIZED (
    SELECT every.lane, row_number() OVER (ORDER BY -every.priority, every.created_at, every.id) AS place
      FROM (SELECT * FROM found
            UNION ALL
            SELECT head.*
              FROM (SELECT DISTINCT lane FROM unnest(%(lanes)s::text[]) AS given (lane)) AS wanted
             CROSS JOIN LATERAL (
                    SELECT c.lane, c.state, c.run_at, c.priority, c.created_at, c.id
                      FROM {table} AS c
                     WHERE c.lane = wanted.lane AND c.lane IS NOT NULL AND c.state <> 'RESOLVED'
                       AND (NOT %(pass)s::boolean OR (c.state IN ('PENDING', 'ASSIGNED') AND c.id <> ALL (%(skip)s::{id_type}[])))
                     ORDER BY c.created_at, c.id LIMIT 1) AS head) AS every
     WHERE every.state = 'PENDING' AND every.run_at <= clock_timestamp()
       AND every.id <> ALL (%(skip)s::{id_type}[])
     ORDER BY -every.priority, every.created_at, every.id
), locked AS MATERIALIZED (
    SELECT heads.lane, heads.place
      FROM heads
     WHERE pg_try_advisory_xact_lock(hashtextextended(heads.lane, %(queue)s::bigint))
     LIMIT %(n)s::int
)
SELECT locked.lane, true AS held, locked.place FROM locked
UNION ALL
(SELECT heads.lane, false, heads.place
   FROM heads
  WHERE heads.place > (SELECT max(locked.place) FROM locked)
  ORDER BY heads.place
  LIMIT %(ahead)s::int)
