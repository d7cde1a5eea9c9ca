-- One item by its primary key.
SELECT t.* FROM {table} AS t WHERE t.id = %(id)s::{id_type}
