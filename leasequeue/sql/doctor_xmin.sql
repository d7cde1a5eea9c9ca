-- Everything that keeps vacuum from removing dead rows of this database: open transactions, prepared transactions, replication slots,
-- and standbys that report their queries. Age in seconds where there is one, and in transactions. Oldest first.
SELECT * FROM (
    SELECT 'transaction' AS kind, 'pid ' || a.pid || ' (' || coalesce(nullif(a.application_name, ''), a.usename, '?') || ')' AS name,
           a.pid, a.state, extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS age_s,
           greatest(age(a.backend_xmin), age(a.backend_xid)) AS age_xids
      FROM pg_catalog.pg_stat_activity AS a
     WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
       AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)
       AND coalesce(a.backend_type, 'client backend') NOT IN ('autovacuum worker', 'walsender')
    UNION ALL
    SELECT 'prepared', p.gid, NULL, NULL, extract(epoch FROM clock_timestamp() - p.prepared)::float8, age(p.transaction)
      FROM pg_catalog.pg_prepared_xacts AS p WHERE p.database = current_database()
    UNION ALL
    SELECT 'slot', s.slot_name, s.active_pid, CASE WHEN s.active THEN 'active' ELSE 'inactive' END, NULL, age(s.xmin)
      FROM pg_catalog.pg_replication_slots AS s WHERE s.xmin IS NOT NULL
    UNION ALL
    SELECT 'standby', r.application_name || ' (pid ' || r.pid || ')', r.pid, r.state, NULL, age(r.backend_xmin)
      FROM pg_catalog.pg_stat_replication AS r WHERE r.backend_xmin IS NOT NULL
  ) AS pins
 ORDER BY pins.age_xids DESC
 LIMIT 50
