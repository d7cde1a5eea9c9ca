-- RESOLVED items that were leased or created after adoption and carry no resolved_at: LeaseQueue never leaves one so, another writer did.
-- Items finished before adoption have none either and are no finding. Counted to 1,000.
SELECT count(*) AS items, (array_agg(found.id))[1:10] AS ids
  FROM (SELECT t.id::text AS id FROM {table} AS t
         WHERE t.state = 'RESOLVED' AND t.resolved_at IS NULL
           AND (t.leased_at > %(adopted_at)s::timestamptz OR t.created_at > %(adopted_at)s::timestamptz)
         LIMIT 1000) AS found
