-- Calls that were refused before any provider was asked, counted by hour. They cost nothing and have
-- no row of their own.
CREATE TABLE refusals (
    begun      BIGINT NOT NULL,
    key_id     TEXT COLLATE "C" NOT NULL,
    account_id TEXT COLLATE "C" NOT NULL,
    model      TEXT COLLATE "C" NOT NULL,
    reason     TEXT COLLATE "C" NOT NULL,
    status     BIGINT NOT NULL,
    calls      BIGINT NOT NULL,
    PRIMARY KEY (begun, key_id, model, reason)
);
