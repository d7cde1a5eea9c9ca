-- What the named lanes hold, for whoever serves these lanes of a table alone: due items and their oldest, items that are due but SCHEDULED,
-- items in flight, expired ones of them, and lanes whose head may be claimed now (which counts where lanes are strict). Read-only; each
-- lane is found through the lanes' own index, whatever the other lanes and the RESOLVED rows.
WITH wanted AS (SELECT DISTINCT lane FROM unnest(%(lanes)s::text[]) AS named (lane)),
due AS (
    SELECT found.created_at
      FROM wanted
     CROSS JOIN LATERAL (
            SELECT c.created_at FROM {table} AS c
             WHERE c.lane = wanted.lane AND c.lane IS NOT NULL AND c.state = 'PENDING' AND c.run_at <= clock_timestamp()
             LIMIT %(cap)s::int) AS found
     LIMIT %(cap)s::int
), flight AS (
    SELECT c.lane, c.lease_expires_at < clock_timestamp() AS expired
      FROM {table} AS c WHERE c.state = 'ASSIGNED' AND c.lane IN (SELECT lane FROM wanted)
), heads AS (
    SELECT head.state, head.run_at <= clock_timestamp() AS due, EXISTS (SELECT 1 FROM flight WHERE flight.lane = wanted.lane) AS busy
      FROM wanted
     CROSS JOIN LATERAL (
            SELECT c.state, c.run_at FROM {table} AS c
             WHERE c.lane = wanted.lane AND c.lane IS NOT NULL AND c.state <> 'RESOLVED'
               AND (NOT %(pass)s::boolean OR c.state IN ('PENDING', 'ASSIGNED'))
             ORDER BY c.created_at, c.id LIMIT 1) AS head
)
SELECT (SELECT count(*) FROM due) AS pending,
       (SELECT min(due.created_at) FROM due) AS oldest_pending_at,
       (SELECT count(*) FROM {table} AS c
         WHERE c.state = 'SCHEDULED' AND c.run_at <= clock_timestamp() AND c.lane IN (SELECT lane FROM wanted)) AS scheduled_due,
       (SELECT count(*) FROM flight) AS assigned,
       (SELECT count(*) FROM flight WHERE flight.expired) AS expired,
       (SELECT count(*) FROM heads WHERE heads.state = 'PENDING' AND heads.due AND NOT heads.busy) AS claimable
