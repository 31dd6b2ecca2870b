-- Calls that were refused before any provider was asked, counted by hour. They cost nothing and have
-- no row of their own.
CREATE TABLE refusals (
    begun      INTEGER NOT NULL,
    key_id     TEXT    NOT NULL,
    account_id TEXT    NOT NULL,
    model      TEXT    NOT NULL,
    reason     TEXT    NOT NULL,
    status     INTEGER NOT NULL,
    calls      INTEGER NOT NULL,
    PRIMARY KEY (begun, key_id, model, reason)
) STRICT, WITHOUT ROWID;
