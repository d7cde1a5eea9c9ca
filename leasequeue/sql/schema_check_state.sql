-- No row in a state that nobody serves: 'pending' or 'PENDING ' would wait for ever.
ALTER TABLE {table} ADD CONSTRAINT {name} CHECK (state IN ({states})) {validity}
