-- The claim index holds -priority, which the smallest integer does not have.
ALTER TABLE {table} ADD CONSTRAINT {name} CHECK (priority > -2147483648) {validity}
