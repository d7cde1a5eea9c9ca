-- Who holds a lock on the table now: process ids and the age of their transactions, never their statements (payload).
SELECT a.pid, coalesce(extract(epoch FROM clock_timestamp() - a.xact_start), 0)::int AS age_s,
       coalesce(nullif(a.application_name, ''), a.backend_type) AS who
  FROM pg_catalog.pg_locks AS l
  JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
 WHERE l.locktype = 'relation' AND l.relation = %(oid)s AND l.granted AND l.pid <> pg_backend_pid()
   AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
 GROUP BY a.pid, a.xact_start, a.application_name, a.backend_type
 ORDER BY age_s DESC
 LIMIT 5
