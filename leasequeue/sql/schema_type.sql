-- Whether the server knows a type by this text; NULL where it does not.
SELECT to_regtype(%(type)s)::text
