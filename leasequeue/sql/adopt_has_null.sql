-- Whether a column that must not be NULL holds one.
SELECT EXISTS (SELECT FROM {table} WHERE {column} IS NULL)
