-- Number of calls that each node knows to be stored. A database that was set back to an earlier state
-- has a smaller number than the node.
CREATE TABLE node_marks (
    node_id TEXT    NOT NULL PRIMARY KEY,
    posted  INTEGER NOT NULL,
    at      INTEGER NOT NULL
) STRICT;

-- Times that this database was found to be set back, and the calls that its nodes posted again.
CREATE TABLE rollbacks (
    node_id  TEXT    NOT NULL,
    at       INTEGER NOT NULL,
    missing  INTEGER NOT NULL,
    reposted INTEGER NOT NULL,
    accepted INTEGER NOT NULL
) STRICT;

-- The same in all copies of this database, and in no other one.
CREATE TABLE store_identity (id TEXT NOT NULL) STRICT;
INSERT INTO store_identity VALUES (lower(hex(randomblob(16))));

-- Tokens of leases are random. A counter that was set back would give the token of a lease that a node
-- still uses to another one.
CREATE VIEW lease_token AS SELECT random() & 4611686018427387903 AS token;
