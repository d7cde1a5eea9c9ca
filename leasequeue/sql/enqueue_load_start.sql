-- One reading of the clock for the rows of one transaction of a load: created_at of each is this plus one microsecond a row. And whether COPY
-- may go into the table itself: it is refused under row security, and passes over rules.
SELECT clock_timestamp(), NOT (row_security_active(c.oid) OR c.relhasrules) FROM pg_catalog.pg_class AS c WHERE c.oid = %(table)s
