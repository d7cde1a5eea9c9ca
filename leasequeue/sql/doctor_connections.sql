-- How many connections the server allows to everybody but superusers, and how many there are; ours among them, whichever queue's.
SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
         - coalesce(current_setting('reserved_connections', true), '0')::int AS allowed,
       count(*) AS used,
       count(*) FILTER (WHERE a.application_name LIKE 'leasequeue%%') AS ours
  FROM pg_catalog.pg_stat_activity AS a
 WHERE a.backend_type = 'client backend' OR a.backend_type IS NULL
