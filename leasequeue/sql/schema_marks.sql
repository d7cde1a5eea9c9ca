-- A mark for each of several tables, and who owns it: while the mark stays the same, so does everything that `verify` and the resolving of
-- the name say. One question instead of several a table, for those who watch many. Reads the catalog and the control schema alone, so it waits
-- for no lock of a table; a table that is gone has the mark of one that was never there.
SELECT w.n::int - 1 AS n,
       md5(concat_ws('|',
           c.oid, c.relkind, c.relpersistence, c.relispartition, c.relrowsecurity, c.relowner, c.relacl::text, c.reloptions::text,
           has_schema_privilege(s.oid, 'USAGE'), has_table_privilege(c.oid, 'SELECT'),
           (SELECT string_agg(concat_ws(',', a.attnum, a.attname, a.atttypid, a.atttypmod, a.attnotnull, a.attidentity, a.attgenerated,
                                        (SELECT d.xmin FROM pg_catalog.pg_attrdef d WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum)),
                              ';' ORDER BY a.attnum)
              FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
           (SELECT string_agg(concat_ws(',', k.oid, k.conname, k.convalidated), ';' ORDER BY k.oid)
              FROM pg_catalog.pg_constraint k WHERE k.conrelid = c.oid),
           (SELECT string_agg(concat_ws(',', i.indexrelid, i.indisvalid, i.indisready, x.relname), ';' ORDER BY i.indexrelid)
              FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid WHERE i.indrelid = c.oid),
           (SELECT count(*) FROM pg_catalog.pg_inherits h WHERE c.oid IN (h.inhrelid, h.inhparent)),
           (SELECT concat_ws(',', v.version, v.xmin) FROM leasequeue.schema_version v WHERE v.queue = c.oid),
           (SELECT concat_ws(',', v.version, v.xmin) FROM leasequeue.schema_version v WHERE v.queue = 0))) AS mark,
       (SELECT o.cr_uid FROM leasequeue.owner o WHERE o.queue = c.oid) AS owner
  FROM unnest(%(schemas)s::text[], %(names)s::text[]) WITH ORDINALITY AS w (schema, name, n)
  LEFT JOIN pg_catalog.pg_namespace s ON s.nspname = w.schema
  LEFT JOIN pg_catalog.pg_class c ON c.relnamespace = s.oid AND c.relname = w.name AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
