-- The oldest schema that a program has to know to work with this database. A program that knows it opens
-- the database, although later migrations were applied. See ../README.md.
CREATE TABLE schema_floor (least INTEGER NOT NULL);
INSERT INTO schema_floor VALUES (36);
