-- Idempotency keys that several items have: only where no unique index forbids it. Counts, ids and owners; never the key (payload).
SELECT count(*) AS keys, coalesce(sum(twice.items), 0)::bigint AS items, coalesce(sum(twice.open), 0)::bigint AS open,
       count(*) FILTER (WHERE twice.leased > 1) AS leased_keys,
       (array_agg(array_to_json(twice.ids) ORDER BY twice.leased DESC))[1] AS example
  FROM (SELECT count(*) AS items, count(*) FILTER (WHERE t.state <> 'RESOLVED') AS open,
               count(*) FILTER (WHERE t.state = 'ASSIGNED') AS leased, (array_agg(t.id::text ORDER BY t.id::text))[1:5] AS ids
          FROM {table} AS t WHERE t.idempotency_key IS NOT NULL
         GROUP BY t.idempotency_key HAVING count(*) > 1 LIMIT 10000) AS twice
