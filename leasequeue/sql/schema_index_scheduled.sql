-- SCHEDULED rows by the time they fall due.
CREATE INDEX {concurrently} {name} ON {table} USING btree (run_at, id) WHERE state = 'SCHEDULED'
