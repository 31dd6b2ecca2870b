-- Digests of the sections of each node's configuration, as JSON, by which nodes notice that theirs
-- differ. Empty until the node has told them.
ALTER TABLE nodes ADD COLUMN facts TEXT NOT NULL DEFAULT '';
