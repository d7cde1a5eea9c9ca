-- Items that hold NaN or Infinity in a numeric column: no amount compares or adds up with them. {conditions} names the columns;
-- {sample} reads only a part of a large table.
SELECT t.id::text AS id, array_remove(ARRAY[{conditions}], NULL) AS columns
  FROM {table} AS t {sample}
 WHERE ({anywhere})
 LIMIT 1000
