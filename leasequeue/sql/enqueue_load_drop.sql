-- Makes room for the next rows that need the temporary table.
DROP TABLE pg_temp.leasequeue_load
