-- What was used, added up as calls are posted, in the very transaction that posts them: by hour, day
-- and month (UTC) of admission, and by whose it is: each key, each account, everyone. So a year is a
-- few rows to read, however many calls it had. `account_id` is told for keys only. `took` and
-- `waited` add up microseconds until the end and until the first byte; their numbered columns count
-- calls by how long that was, with the bounds of `Times::BOUNDS`.
CREATE TABLE usage (
    span        TEXT    NOT NULL,
    scope       TEXT    NOT NULL,
    owner       TEXT    NOT NULL,
    begun       INTEGER NOT NULL,
    account_id  TEXT    NOT NULL,
    model       TEXT    NOT NULL,
    lane        TEXT    NOT NULL,
    status      INTEGER NOT NULL,
    calls       INTEGER NOT NULL,
    streams     INTEGER NOT NULL,
    estimated   INTEGER NOT NULL,
    input       INTEGER NOT NULL,
    cache_read  INTEGER NOT NULL,
    cache_write INTEGER NOT NULL,
    output      INTEGER NOT NULL,
    thinking    INTEGER NOT NULL,
    searches    INTEGER NOT NULL,
    cost        INTEGER NOT NULL,
    borne       INTEGER NOT NULL,
    took        INTEGER NOT NULL,
    waited      INTEGER NOT NULL,
    took_0      INTEGER NOT NULL,
    took_1      INTEGER NOT NULL,
    took_2      INTEGER NOT NULL,
    took_3      INTEGER NOT NULL,
    took_4      INTEGER NOT NULL,
    took_5      INTEGER NOT NULL,
    took_6      INTEGER NOT NULL,
    took_7      INTEGER NOT NULL,
    took_8      INTEGER NOT NULL,
    took_9      INTEGER NOT NULL,
    took_10     INTEGER NOT NULL,
    took_11     INTEGER NOT NULL,
    waited_0    INTEGER NOT NULL,
    waited_1    INTEGER NOT NULL,
    waited_2    INTEGER NOT NULL,
    waited_3    INTEGER NOT NULL,
    waited_4    INTEGER NOT NULL,
    waited_5    INTEGER NOT NULL,
    waited_6    INTEGER NOT NULL,
    waited_7    INTEGER NOT NULL,
    waited_8    INTEGER NOT NULL,
    waited_9    INTEGER NOT NULL,
    waited_10   INTEGER NOT NULL,
    waited_11   INTEGER NOT NULL,
    PRIMARY KEY (span, scope, owner, begun, account_id, model, lane, status)
) STRICT, WITHOUT ROWID;
CREATE INDEX usage_by_time ON usage (span, scope, begun);
CREATE INDEX usage_of_account ON usage (span, account_id, begun) WHERE scope = 'key';

INSERT INTO usage SELECT 'hour', 'key', key_id, started - ((started % 3600000000) + 3600000000) % 3600000000,
    account_id, model, lane, status,
    COUNT(*),
    COUNT(*) FILTER (WHERE stream),
    COUNT(*) FILTER (WHERE estimated),
    SUM(CASE WHEN input > 1000000000000 THEN 1000000000000 ELSE input END),
    SUM(CASE WHEN cache_read > 1000000000000 THEN 1000000000000 ELSE cache_read END),
    SUM(CASE WHEN cache_write > 1000000000000 THEN 1000000000000 ELSE cache_write END) + SUM(CASE
    WHEN cache_write_long > 1000000000000 THEN 1000000000000 ELSE cache_write_long END),
    SUM(CASE WHEN output > 1000000000000 THEN 1000000000000 ELSE output END),
    SUM(CASE WHEN thinking > 1000000000000 THEN 1000000000000 ELSE thinking END),
    SUM(CASE WHEN searches > 1000000000000 THEN 1000000000000 ELSE searches END),
    SUM(cost),
    SUM(CASE WHEN borne > 1000000000000000 THEN 1000000000000000 WHEN borne < -1000000000000000
    THEN -1000000000000000 ELSE borne END),
    SUM(CASE WHEN (ended - started) < 0 THEN 0 WHEN (ended - started) > 1000000000000 THEN
    1000000000000 ELSE (ended - started) END),
    COALESCE(SUM(CASE WHEN first_byte_us < 0 THEN 0 WHEN first_byte_us > 1000000000000 THEN
    1000000000000 ELSE first_byte_us END), 0),
    COUNT(*) FILTER (WHERE (ended - started) < 50000),
    COUNT(*) FILTER (WHERE (ended - started) >= 50000 AND (ended - started) < 100000),
    COUNT(*) FILTER (WHERE (ended - started) >= 100000 AND (ended - started) < 200000),
    COUNT(*) FILTER (WHERE (ended - started) >= 200000 AND (ended - started) < 400000),
    COUNT(*) FILTER (WHERE (ended - started) >= 400000 AND (ended - started) < 700000),
    COUNT(*) FILTER (WHERE (ended - started) >= 700000 AND (ended - started) < 1000000),
    COUNT(*) FILTER (WHERE (ended - started) >= 1000000 AND (ended - started) < 2000000),
    COUNT(*) FILTER (WHERE (ended - started) >= 2000000 AND (ended - started) < 4000000),
    COUNT(*) FILTER (WHERE (ended - started) >= 4000000 AND (ended - started) < 10000000),
    COUNT(*) FILTER (WHERE (ended - started) >= 10000000 AND (ended - started) < 30000000),
    COUNT(*) FILTER (WHERE (ended - started) >= 30000000 AND (ended - started) < 60000000),
    COUNT(*) FILTER (WHERE (ended - started) >= 60000000),
    COUNT(*) FILTER (WHERE first_byte_us < 50000),
    COUNT(*) FILTER (WHERE first_byte_us >= 50000 AND first_byte_us < 100000),
    COUNT(*) FILTER (WHERE first_byte_us >= 100000 AND first_byte_us < 200000),
    COUNT(*) FILTER (WHERE first_byte_us >= 200000 AND first_byte_us < 400000),
    COUNT(*) FILTER (WHERE first_byte_us >= 400000 AND first_byte_us < 700000),
    COUNT(*) FILTER (WHERE first_byte_us >= 700000 AND first_byte_us < 1000000),
    COUNT(*) FILTER (WHERE first_byte_us >= 1000000 AND first_byte_us < 2000000),
    COUNT(*) FILTER (WHERE first_byte_us >= 2000000 AND first_byte_us < 4000000),
    COUNT(*) FILTER (WHERE first_byte_us >= 4000000 AND first_byte_us < 10000000),
    COUNT(*) FILTER (WHERE first_byte_us >= 10000000 AND first_byte_us < 30000000),
    COUNT(*) FILTER (WHERE first_byte_us >= 30000000 AND first_byte_us < 60000000),
    COUNT(*) FILTER (WHERE first_byte_us >= 60000000)
FROM entries
GROUP BY key_id, started - ((started % 3600000000) + 3600000000) % 3600000000,
    account_id, model, lane, status;
INSERT INTO usage SELECT 'day', 'key', owner, begun - ((begun % 86400000000) + 86400000000) % 86400000000, account_id, model, lane, status,
    SUM(calls), SUM(streams), SUM(estimated), SUM(input), SUM(cache_read), SUM(cache_write),
    SUM(output), SUM(thinking), SUM(searches), SUM(cost), SUM(borne), SUM(took), SUM(waited),
    SUM(took_0), SUM(took_1), SUM(took_2), SUM(took_3), SUM(took_4), SUM(took_5), SUM(took_6),
    SUM(took_7), SUM(took_8), SUM(took_9), SUM(took_10), SUM(took_11), SUM(waited_0),
    SUM(waited_1), SUM(waited_2), SUM(waited_3), SUM(waited_4), SUM(waited_5), SUM(waited_6),
    SUM(waited_7), SUM(waited_8), SUM(waited_9), SUM(waited_10), SUM(waited_11)
FROM usage WHERE span = 'hour' AND scope = 'key'
GROUP BY owner, begun - ((begun % 86400000000) + 86400000000) % 86400000000, account_id, model, lane, status;
INSERT INTO usage SELECT 'month', 'key', owner, unixepoch(begun / 1000000, 'unixepoch', 'start of month') * 1000000, account_id, model, lane, status,
    SUM(calls), SUM(streams), SUM(estimated), SUM(input), SUM(cache_read), SUM(cache_write),
    SUM(output), SUM(thinking), SUM(searches), SUM(cost), SUM(borne), SUM(took), SUM(waited),
    SUM(took_0), SUM(took_1), SUM(took_2), SUM(took_3), SUM(took_4), SUM(took_5), SUM(took_6),
    SUM(took_7), SUM(took_8), SUM(took_9), SUM(took_10), SUM(took_11), SUM(waited_0),
    SUM(waited_1), SUM(waited_2), SUM(waited_3), SUM(waited_4), SUM(waited_5), SUM(waited_6),
    SUM(waited_7), SUM(waited_8), SUM(waited_9), SUM(waited_10), SUM(waited_11)
FROM usage WHERE span = 'day' AND scope = 'key'
GROUP BY owner, unixepoch(begun / 1000000, 'unixepoch', 'start of month') * 1000000, account_id, model, lane, status;
INSERT INTO usage SELECT span, 'account', account_id, begun, '', model, lane, status,
    SUM(calls), SUM(streams), SUM(estimated), SUM(input), SUM(cache_read), SUM(cache_write),
    SUM(output), SUM(thinking), SUM(searches), SUM(cost), SUM(borne), SUM(took), SUM(waited),
    SUM(took_0), SUM(took_1), SUM(took_2), SUM(took_3), SUM(took_4), SUM(took_5), SUM(took_6),
    SUM(took_7), SUM(took_8), SUM(took_9), SUM(took_10), SUM(took_11), SUM(waited_0),
    SUM(waited_1), SUM(waited_2), SUM(waited_3), SUM(waited_4), SUM(waited_5), SUM(waited_6),
    SUM(waited_7), SUM(waited_8), SUM(waited_9), SUM(waited_10), SUM(waited_11)
FROM usage WHERE scope = 'key'
GROUP BY span, account_id, begun, model, lane, status;
INSERT INTO usage SELECT span, 'all', '', begun, '', model, lane, status,
    SUM(calls), SUM(streams), SUM(estimated), SUM(input), SUM(cache_read), SUM(cache_write),
    SUM(output), SUM(thinking), SUM(searches), SUM(cost), SUM(borne), SUM(took), SUM(waited),
    SUM(took_0), SUM(took_1), SUM(took_2), SUM(took_3), SUM(took_4), SUM(took_5), SUM(took_6),
    SUM(took_7), SUM(took_8), SUM(took_9), SUM(took_10), SUM(took_11), SUM(waited_0),
    SUM(waited_1), SUM(waited_2), SUM(waited_3), SUM(waited_4), SUM(waited_5), SUM(waited_6),
    SUM(waited_7), SUM(waited_8), SUM(waited_9), SUM(waited_10), SUM(waited_11)
FROM usage WHERE scope = 'account'
GROUP BY span, begun, model, lane, status;

-- The days are here as well now.
DROP TABLE key_days;

-- What was set aside for the call; not known of calls from before.
ALTER TABLE entries ADD COLUMN held INTEGER;
CREATE INDEX entries_by_model ON entries (model, ended, request_id);

-- A ledger's rows are written once.
CREATE TRIGGER entries_stay_as_they_are BEFORE UPDATE ON entries
    BEGIN SELECT RAISE(ABORT, 'a settled call is never changed'); END;
CREATE TRIGGER entries_stay BEFORE DELETE ON entries
    BEGIN SELECT RAISE(ABORT, 'a settled call is never forgotten'); END;
CREATE VIEW entry_guards AS
    SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'entries';
