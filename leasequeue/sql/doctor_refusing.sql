-- Unfinished items that break a CHECK which was added NOT VALID: any change of such a row is refused. Counted to a cap, oldest first.
SELECT count(*) AS items, (array_agg(bad.id))[1:10] AS ids
  FROM (SELECT t.id::text AS id
          FROM {table} AS t
         WHERE t.state <> 'RESOLVED' AND NOT coalesce({condition}, true)
         ORDER BY t.created_at, t.id LIMIT 10000) AS bad
