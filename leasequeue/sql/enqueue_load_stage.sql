-- Streams rows of one set of columns into the temporary table.
COPY pg_temp.leasequeue_load ({columns}) FROM STDIN
