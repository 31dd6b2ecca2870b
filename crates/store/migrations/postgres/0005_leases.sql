-- A cap is cut into leases, each subtracted for one node before that node may spend it.

-- The sum of the key's leases: `spent + leased <= cap` is one condition on one row.
ALTER TABLE keys ADD COLUMN leased BIGINT NOT NULL DEFAULT 0 CHECK (leased >= 0);
-- Until when nodes are asked to hand back what they do not need of this key's money.
ALTER TABLE keys ADD COLUMN wanted BIGINT NOT NULL DEFAULT 0;

-- The one clock all nodes share.
CREATE VIEW store_clock AS
    SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT) AS now;

CREATE TABLE nodes (
    id    TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    epoch BIGINT NOT NULL,
    seen  BIGINT NOT NULL
);

-- A token is never given twice. `exposed` is what its node may have used without telling, by the
-- latest message, which `told` numbers; so much stays in a lease that is closed because its node
-- is gone, for what that node's journal will tell.
CREATE TABLE leases (
    token   BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key_id  TEXT COLLATE "C" NOT NULL REFERENCES keys (id),
    node_id TEXT COLLATE "C" NOT NULL,
    amount  BIGINT NOT NULL CHECK (amount >= 0),
    version BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    exposed BIGINT NOT NULL,
    told    BIGINT NOT NULL,
    closed  BIGINT NOT NULL
);
CREATE UNIQUE INDEX leases_in_use ON leases (key_id, node_id) WHERE closed = 0;
CREATE INDEX leases_by_node ON leases (node_id);
CREATE INDEX leases_by_expiry ON leases (expires);

-- Calls that run for a while, as their node last told of them.
CREATE TABLE holds (
    request_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    node_id    TEXT COLLATE "C" NOT NULL,
    key_id     TEXT COLLATE "C" NOT NULL,
    lease      BIGINT,
    amount     BIGINT NOT NULL,
    body       TEXT NOT NULL
);
CREATE INDEX holds_by_node ON holds (node_id);
CREATE INDEX holds_by_key ON holds (key_id);
