-- Number of the table's pages now; rows written later carry their trace id from the default.
SELECT (pg_relation_size(%(oid)s::regclass) / current_setting('block_size')::int)::bigint
