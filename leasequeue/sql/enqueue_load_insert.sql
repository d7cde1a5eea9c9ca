-- Inserts the rows from the temporary table, in the order they were given. {conflict} is DO NOTHING on the key, or nothing.
INSERT INTO {table} ({columns})
SELECT {columns} FROM pg_temp.leasequeue_load ORDER BY created_at
{conflict}
