-- One row a key: what ON CONFLICT of an enqueue relies on. Neither partial nor deferrable, since those cannot arbitrate.
CREATE UNIQUE INDEX {concurrently} {name} ON {table} USING btree (idempotency_key)
