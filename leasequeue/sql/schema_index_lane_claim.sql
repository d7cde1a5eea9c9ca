-- PENDING rows of each lane, by priority: which lanes have work.
CREATE INDEX {concurrently} {name} ON {table} USING btree (lane, (-priority), created_at, id) WHERE lane IS NOT NULL AND state = 'PENDING'
