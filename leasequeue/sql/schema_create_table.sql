-- The table of a new queue: the user's typed columns and our lease columns.
-- The fillfactor leaves room on each page so that renewals stay HOT; vacuum comes early, since every item dies twice.
CREATE TABLE {table} ({columns})
  WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000)
