-- Adds a lease column. The default is constant or stable, so PostgreSQL stores it once in the catalog: no row is rewritten.
ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {column} {type} {default} {not_null}
