-- Holds rows of one set of columns until they are inserted, in columns of the queue's own types; gone with the transaction at the latest.
CREATE TEMPORARY TABLE leasequeue_load ON COMMIT DROP AS SELECT {columns} FROM {table} WITH NO DATA
