-- Holds the rows of one bulk load on the server until they are inserted; gone with the transaction.
CREATE TEMPORARY TABLE leasequeue_load (ord bigint, shape integer, item json) ON COMMIT DROP
