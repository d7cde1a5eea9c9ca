-- Room for HOT updates on new pages and an early vacuum. Takes a lock that neither readers nor writers wait for.
ALTER TABLE {table} SET ({options})
