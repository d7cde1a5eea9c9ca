-- Retention finds old completions by block range; a B-tree here would make every completion write one entry more.
CREATE INDEX {concurrently} {name} ON {table} USING brin (resolved_at) WITH (autosummarize = on)
