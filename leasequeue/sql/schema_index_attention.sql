-- Items that wait for a person or are given up: counted and listed without a look at the finished ones.
CREATE INDEX {concurrently} {name} ON {table} USING btree (state, created_at, id) WHERE state = ANY (ARRAY['FAILED', 'REPAIR'])
