-- Lanes that have a row in flight: no further row of theirs may start.
CREATE INDEX {concurrently} {name} ON {table} USING btree (lane) WHERE lane IS NOT NULL AND state = 'ASSIGNED'
