-- Finds the queue's table once, by exact schema and name; no search_path, no case folding, no cut at 63 bytes.
-- Takes no lock of the table, so it answers beside an ALTER TABLE: the claim index of strict lanes (an expression first, three keys, a test for
-- NULL in its predicate) is told by the stored form of its predicate, since pg_get_expr() locks the table from PostgreSQL 18 on.
-- Also tells apart "no such schema", "no USAGE on the schema" and "no such table", which PostgreSQL reports alike or misleadingly.
SELECT n.oid IS NOT NULL                                              AS schema_exists,
       coalesce(has_schema_privilege(n.oid, 'USAGE'), false)          AS schema_usable,
       c.oid                                                          AS oid,
       c.relkind::text                                                AS kind,
       coalesce(has_table_privilege(c.oid, 'SELECT'), false)          AS readable,
       coalesce((SELECT jsonb_object_agg(a.attname, format_type(a.atttypid, a.atttypmod))
                   FROM pg_catalog.pg_attribute a
                  WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped), '{}')
                                                                      AS columns,
       EXISTS (SELECT FROM pg_catalog.pg_index i
                WHERE i.indrelid = c.oid AND i.indisvalid AND i.indnkeyatts = 3 AND i.indkey[0] = 0
                  AND i.indpred::text LIKE '%%{NULLTEST %%:nulltesttype 0 %%')
                                                                      AS strict,
       coalesce(c.relhasrules, false)                                 AS rules
  FROM (SELECT %(schema)s::text AS schema, %(name)s::text AS name) AS wanted
  LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = wanted.schema
  LEFT JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
