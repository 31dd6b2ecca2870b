-- Sums of the calls of each session that callers name, by key, model and lane. They are written in the
-- transaction that posts the calls, and corrections change them.
CREATE TABLE call_sessions (
    session    TEXT   NOT NULL,
    key_id     TEXT   NOT NULL,
    model      TEXT   NOT NULL,
    lane       TEXT   NOT NULL,
    account_id TEXT   NOT NULL,
    begun      BIGINT NOT NULL,
    ended      BIGINT NOT NULL,
    calls      BIGINT NOT NULL,
    input      BIGINT NOT NULL,
    cache_read BIGINT NOT NULL,
    output     BIGINT NOT NULL,
    thinking   BIGINT NOT NULL,
    cost       BIGINT NOT NULL,
    absorbed   BIGINT NOT NULL,
    PRIMARY KEY (session, key_id, model, lane)
);
CREATE INDEX call_sessions_by_account ON call_sessions (account_id, ended);
