-- Records that a queue's table is at `version`: the last thing create and adopt do, so an interrupted run leaves the old number.
INSERT INTO leasequeue.schema_version (queue, version) VALUES (%(queue)s, %(version)s)
    ON CONFLICT (queue) DO UPDATE SET version = excluded.version, applied_at = clock_timestamp()
    WHERE schema_version.version <> excluded.version
