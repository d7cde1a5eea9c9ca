-- Everything the catalog says about one table, in one snapshot and one answer. Reads the catalog alone, so it needs no right on
-- the table and waits for none of its locks.
SELECT jsonb_build_object(
    'server_version', current_setting('server_version_num')::int,
    'schema_exists', n.oid IS NOT NULL,
    'schema_usable', coalesce(has_schema_privilege(n.oid, 'USAGE'), false),
    'oid', c.oid::bigint,
    'kind', c.relkind,
    'persistence', c.relpersistence,
    'is_partition', coalesce(c.relispartition, false),
    'inherits', EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE c.oid IN (i.inhparent, i.inhrelid)),
    'row_security', coalesce(c.relrowsecurity, false),
    'owned', coalesce(pg_has_role(c.relowner, 'USAGE'), false),
    'options', coalesce(to_jsonb(c.reloptions), '[]'),
    'control_table', v.oid IS NOT NULL,
    'control_usable', coalesce(has_schema_privilege(v.relnamespace, 'USAGE') AND has_table_privilege(v.oid, 'SELECT'), false),
    'columns', coalesce((
        SELECT jsonb_agg(jsonb_build_object(
                   'name', a.attname, 'type', format_type(a.atttypid, a.atttypmod), 'kind', y.typtype,
                   'not_null', a.attnotnull, 'default', pg_get_expr(d.adbin, d.adrelid), 'identity', a.attidentity,
                   'generated', a.attgenerated) ORDER BY a.attnum)
          FROM pg_catalog.pg_attribute a
          JOIN pg_catalog.pg_type y ON y.oid = a.atttypid
          LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
         WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped), '[]'),
    'checks', coalesce((
        SELECT jsonb_agg(jsonb_build_object(
                   'name', k.conname, 'expression', pg_get_expr(k.conbin, k.conrelid), 'validated', k.convalidated,
                   'columns', (SELECT coalesce(jsonb_agg(a.attname ORDER BY a.attnum), '[]') FROM pg_catalog.pg_attribute a
                                WHERE a.attrelid = c.oid AND a.attnum = ANY (k.conkey))) ORDER BY k.conname)
          FROM pg_catalog.pg_constraint k
         WHERE k.conrelid = c.oid AND k.contype = 'c'), '[]'),
    'indexes', coalesce((
        SELECT jsonb_agg(jsonb_build_object(
                   'name', x.relname, 'definition', pg_get_indexdef(i.indexrelid), 'valid', i.indisvalid AND i.indisready,
                   'unique', i.indisunique, 'immediate', i.indimmediate, 'partial', i.indpred IS NOT NULL,
                   'constraint', EXISTS (SELECT FROM pg_catalog.pg_constraint k WHERE k.conindid = i.indexrelid),
                   'scans', coalesce(pg_stat_get_numscans(i.indexrelid), 0),
                   'keys', (SELECT jsonb_agg(a.attname ORDER BY p.ord)
                              FROM unnest(i.indkey[0:i.indnkeyatts - 1]) WITH ORDINALITY AS p (attnum, ord)
                              LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = p.attnum AND p.attnum > 0)
                   ) ORDER BY x.relname)
          FROM pg_catalog.pg_index i
          JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
         WHERE i.indrelid = c.oid), '[]')
    ) AS facts
  FROM (SELECT %(schema)s::text AS schema, %(name)s::text AS name) AS wanted
  LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = wanted.schema
  LEFT JOIN pg_catalog.pg_class c
    ON c.relnamespace = n.oid AND c.relname = wanted.name AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
  LEFT JOIN pg_catalog.pg_namespace m ON m.nspname = 'leasequeue'
  LEFT JOIN pg_catalog.pg_class v ON v.relnamespace = m.oid AND v.relname = 'schema_version'
