-- One reading of the clock for the rows of one transaction of a load: created_at of each is this plus one microsecond a row. Whether COPY may
-- go into the table itself: it is refused under row security, and passes over rules. And which uuid columns are random by default: the
-- client makes those, since a server without OpenSSL opens /dev/urandom anew for each, which is up to half of its work on a row.
SELECT clock_timestamp(),
       NOT (row_security_active(c.oid) OR c.relhasrules),
       coalesce((SELECT jsonb_object_agg(a.attname, pg_get_expr(d.adbin, d.adrelid))
                   FROM pg_catalog.pg_attribute AS a
                   JOIN pg_catalog.pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
                  WHERE a.attrelid = c.oid AND a.atttypid = 'uuid'::regtype AND a.attgenerated = ''
                    AND has_column_privilege(c.oid, a.attnum, 'INSERT')
                    AND pg_get_expr(d.adbin, d.adrelid) IN ('uuidv7()', 'gen_random_uuid()')), '{}')
  FROM pg_catalog.pg_class AS c
 WHERE c.oid = %(table)s
