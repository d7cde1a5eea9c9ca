-- One reading of the clock for the whole load: created_at of each row is this plus one microsecond a row.
SELECT clock_timestamp()
