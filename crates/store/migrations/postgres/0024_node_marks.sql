-- Number of calls that each node knows to be stored. A database that was set back to an earlier state
-- has a smaller number than the node.
CREATE TABLE node_marks (
    node_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    posted  BIGINT NOT NULL,
    at      BIGINT NOT NULL
);

-- Times that this database was found to be set back, and the calls that its nodes posted again.
CREATE TABLE rollbacks (
    node_id  TEXT COLLATE "C" NOT NULL,
    at       BIGINT NOT NULL,
    missing  BIGINT NOT NULL,
    reposted BIGINT NOT NULL,
    accepted BIGINT NOT NULL
);

-- The same in all copies of this database, and in no other one.
CREATE TABLE store_identity (id TEXT COLLATE "C" NOT NULL);
INSERT INTO store_identity VALUES (replace(CAST(gen_random_uuid() AS TEXT), '-', ''));

-- Tokens of leases are random. A counter that was set back would give the token of a lease that a node
-- still uses to another one.
CREATE VIEW lease_token AS SELECT
    CAST(CAST('x' || substr(replace(CAST(gen_random_uuid() AS TEXT), '-', ''), 1, 16) AS BIT(64)) AS BIGINT)
    & 4611686018427387903 AS token;
-- Nodes of the version before name no token.
CREATE FUNCTION new_lease_token() RETURNS BIGINT LANGUAGE SQL VOLATILE AS 'SELECT token FROM lease_token';
ALTER TABLE leases ALTER COLUMN token DROP IDENTITY;
ALTER TABLE leases ALTER COLUMN token SET DEFAULT new_lease_token();
