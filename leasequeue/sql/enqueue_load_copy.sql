-- Streams rows of one set of columns into the table: no key of theirs may be there.
COPY {table} ({columns}) FROM STDIN
