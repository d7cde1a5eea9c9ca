-- Undoes a part whose keys were there.
ROLLBACK TO SAVEPOINT leasequeue_load
