-- Asks an existing CHECK what it would say to a row of ours, without writing one.
SELECT ({expression}) IS NOT FALSE AS accepted FROM (SELECT {columns}) AS probe
