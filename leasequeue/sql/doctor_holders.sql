-- Transactions that hold locks on the table's rows, or on the table itself, and their age. Claims pass locked rows over without
-- waiting, so nobody else shows that such an item goes nowhere. NULL age: this role may not see that session.
SELECT l.pid, coalesce(nullif(a.application_name, ''), a.usename) AS who, a.state,
       extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS held_s, array_agg(DISTINCT l.mode) AS modes,
       l.pid IS NULL AS prepared
  FROM pg_catalog.pg_locks AS l
  LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
 WHERE l.locktype = 'relation' AND l.relation = %(queue)s AND l.granted
   AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
   AND l.mode IN ('RowShareLock', 'RowExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
   AND l.pid IS DISTINCT FROM pg_backend_pid()
 GROUP BY l.pid, a.application_name, a.usename, a.state, a.xact_start
 LIMIT 100
