-- Who waits for a lock on the table, on one of its rows, or for the ceiling's advisory lock, and who holds it: process ids, names, ages.
-- Never a statement's text (payload). NULL ages: this role may not see that session.
WITH ours AS (
    SELECT DISTINCT l.pid FROM pg_catalog.pg_locks AS l
     WHERE l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
       AND ((l.locktype = 'relation' AND l.relation = %(queue)s)
            OR (l.locktype = 'advisory' AND l.classid = %(ceiling)s::oid AND l.objid = %(queue)s AND l.objsubid = 1)))
SELECT w.pid, coalesce(nullif(a.application_name, ''), a.usename) AS who, w.locktype AS lock, w.mode,
       coalesce(extract(epoch FROM clock_timestamp() - w.waitstart), 0)::float8 AS waits_s,
       b.pid AS blocker, coalesce(nullif(h.application_name, ''), h.usename) AS blocker_who, h.state AS blocker_state,
       extract(epoch FROM clock_timestamp() - h.xact_start)::float8 AS blocker_s
  FROM pg_catalog.pg_locks AS w
  JOIN ours ON ours.pid = w.pid
  LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = w.pid
 CROSS JOIN LATERAL unnest(pg_blocking_pids(w.pid)) AS b (pid)
  LEFT JOIN pg_catalog.pg_stat_activity AS h ON h.pid = b.pid
 WHERE NOT w.granted AND w.pid <> pg_backend_pid() AND (w.locktype <> 'relation' OR w.relation = %(queue)s)
 ORDER BY waits_s DESC
 LIMIT 100
