-- First half of NOT NULL without a scan under an exclusive lock: a CHECK for new rows, validated later.
ALTER TABLE {table} ADD CONSTRAINT {name} CHECK ({column} IS NOT NULL) NOT VALID
