-- SCHEDULED items whose time came more than after_s seconds ago: nobody promotes them. Counted to a cap, oldest first.
SELECT count(*) AS items, max(late.late_s) AS late_s, (array_agg(late.id))[1:10] AS ids
  FROM (SELECT c.id::text AS id, extract(epoch FROM clock_timestamp() - c.run_at)::float8 AS late_s
          FROM {table} AS c
         WHERE c.state = 'SCHEDULED' AND isfinite(c.run_at)
           AND c.run_at < clock_timestamp() - %(after_s)s::float8 * interval '1 second'
         ORDER BY c.run_at, c.id LIMIT 10000) AS late
