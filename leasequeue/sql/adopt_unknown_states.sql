-- States that nobody would serve, with their counts: read before anything is altered.
SELECT coalesce(state, '(null)') AS state, count(*) AS rows FROM {table}
 WHERE state IS NULL OR NOT state = ANY (%(known)s::text[]) GROUP BY 1 ORDER BY 2 DESC LIMIT 10
