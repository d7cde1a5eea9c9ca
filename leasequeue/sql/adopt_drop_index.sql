-- Removes an index that an interrupted build left INVALID, or that another form replaced; no reader or writer waits.
DROP INDEX CONCURRENTLY IF EXISTS {index}
