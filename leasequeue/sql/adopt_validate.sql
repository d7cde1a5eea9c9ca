-- Proves a CHECK for the rows that were there before it. Reads the table under a lock that neither readers nor writers wait for.
ALTER TABLE {table} VALIDATE CONSTRAINT {name}
