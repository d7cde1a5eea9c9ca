-- Unfinished rows of one range of pages that are older than the column get a trace id: each page is read once. Finished rows
-- keep NULL: no reason to rewrite history. A row locked by a plain-SQL client is skipped and taken in the next round.
UPDATE {table} AS t
   SET trace_id = gen_random_uuid()
 WHERE t.id = ANY (ARRAY(
        SELECT c.id FROM {table} AS c
         WHERE c.ctid >= %(first)s::tid AND c.ctid < %(upto)s::tid AND c.trace_id IS NULL AND c.state <> 'RESOLVED'
           FOR UPDATE SKIP LOCKED))
   AND t.trace_id IS NULL
