-- Sums of the calls of each session that callers name, by key, model and lane. They are written in the
-- transaction that posts the calls, and corrections change them.
CREATE TABLE call_sessions (
    session    TEXT   NOT NULL,
    key_id     TEXT   NOT NULL,
    model      TEXT   NOT NULL,
    lane       TEXT   NOT NULL,
    account_id TEXT   NOT NULL,
    begun      INTEGER NOT NULL,
    ended      INTEGER NOT NULL,
    calls      INTEGER NOT NULL,
    input      INTEGER NOT NULL,
    cache_read INTEGER NOT NULL,
    output     INTEGER NOT NULL,
    thinking   INTEGER NOT NULL,
    cost       INTEGER NOT NULL,
    absorbed   INTEGER NOT NULL,
    PRIMARY KEY (session, key_id, model, lane)
) STRICT, WITHOUT ROWID;
CREATE INDEX call_sessions_by_account ON call_sessions (account_id, ended);
