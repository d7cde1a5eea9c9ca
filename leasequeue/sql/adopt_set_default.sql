-- The default of rows to come; rows that exist keep their values, so nothing is rewritten.
ALTER TABLE {table} ALTER COLUMN {column} SET DEFAULT {default}
