-- Gives a rebuilt index its final name.
ALTER INDEX {index} RENAME TO {name}
