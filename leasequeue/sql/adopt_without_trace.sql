-- Whether unfinished rows without a trace id are left.
SELECT EXISTS (SELECT FROM {table} WHERE trace_id IS NULL AND state <> 'RESOLVED')
