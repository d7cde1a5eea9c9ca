-- PostgreSQL's own counters of the table and of each of its indexes, and the indexes that are being built now. Read from the
-- statistics alone: it must neither count as a use of the table nor wait for its locks.
SELECT s.seq_scan, s.n_tup_upd AS updates, s.n_live_tup AS live, s.n_dead_tup AS dead, s.last_autovacuum,
       current_setting('autovacuum') = 'on'
           AND NOT coalesce('autovacuum_enabled=false' = ANY (c.reloptions) OR 'autovacuum_enabled=off' = ANY (c.reloptions), false)
           AS autovacuum,
       c.relpages::bigint * current_setting('block_size')::int AS bytes,
       coalesce((SELECT jsonb_object_agg(i.indexrelname, i.idx_scan) FROM pg_catalog.pg_stat_all_indexes AS i
                  WHERE i.relid = c.oid), '{}') AS scans,
       coalesce((SELECT jsonb_agg(x.relname) FROM pg_catalog.pg_stat_progress_create_index AS p
                   JOIN pg_catalog.pg_class AS x ON x.oid = p.index_relid WHERE p.relid = c.oid), '[]') AS building
  FROM pg_catalog.pg_class AS c
  LEFT JOIN pg_catalog.pg_stat_all_tables AS s ON s.relid = c.oid
 WHERE c.oid = %(queue)s
