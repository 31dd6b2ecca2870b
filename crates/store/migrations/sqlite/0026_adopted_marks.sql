-- 1 while a node has posted nothing since an operator set this database back on purpose.
ALTER TABLE node_marks ADD COLUMN adopted INTEGER NOT NULL DEFAULT 0;
