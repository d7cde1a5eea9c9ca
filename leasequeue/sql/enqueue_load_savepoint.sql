-- Where a part of a load began: a key that is there already undoes the part, not the load.
SAVEPOINT leasequeue_load
