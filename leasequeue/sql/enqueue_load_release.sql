-- A part is in.
RELEASE SAVEPOINT leasequeue_load
