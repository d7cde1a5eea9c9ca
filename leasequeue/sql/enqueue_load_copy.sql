-- Streams the rows in; the client holds none of them.
COPY pg_temp.leasequeue_load (ord, shape, item) FROM STDIN
