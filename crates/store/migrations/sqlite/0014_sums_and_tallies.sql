-- Rows lie by time first: what is asked for is a stretch of time, whose rows then lie side by side
-- however many years there are, and what is added to is the end of each.
CREATE TABLE usage_in_time (
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
    PRIMARY KEY (span, scope, begun, owner, account_id, model, lane, status)
) STRICT, WITHOUT ROWID;
INSERT INTO usage_in_time SELECT * FROM usage
ORDER BY span, scope, begun, owner, account_id, model, lane, status;
DROP TABLE usage;
ALTER TABLE usage_in_time RENAME TO usage;
CREATE INDEX usage_by_owner ON usage (span, scope, owner, begun);
CREATE INDEX usage_of_account ON usage (span, account_id, begun) WHERE scope = 'key';

-- What an owner used in all, beside what it used of each model, lane and status: questions about many
-- owners, or about what is not told apart, read one row for each stretch of time and no more. In an
-- hour there is little to add up, so hours have none.
INSERT INTO usage SELECT span, scope || '_sum', owner, begun, account_id, '', '', 0,
    SUM(calls), SUM(streams), SUM(estimated), SUM(input), SUM(cache_read), SUM(cache_write),
    SUM(output), SUM(thinking), SUM(searches), SUM(cost), SUM(borne), SUM(took), SUM(waited),
    SUM(took_0), SUM(took_1), SUM(took_2), SUM(took_3), SUM(took_4), SUM(took_5), SUM(took_6),
    SUM(took_7), SUM(took_8), SUM(took_9), SUM(took_10), SUM(took_11), SUM(waited_0),
    SUM(waited_1), SUM(waited_2), SUM(waited_3), SUM(waited_4), SUM(waited_5), SUM(waited_6),
    SUM(waited_7), SUM(waited_8), SUM(waited_9), SUM(waited_10), SUM(waited_11)
FROM usage WHERE span <> 'hour' AND scope IN ('key', 'account', 'all')
GROUP BY span, scope, owner, begun, account_id;
CREATE INDEX usage_sums_of_account ON usage (span, account_id, begun) WHERE scope = 'key_sum';

-- What the planner is to know of it: without, it takes a stretch of time for as narrow as an owner and
-- reads everyone's rows for one. As counted in a year of a thousand keys.
ANALYZE usage;
DELETE FROM sqlite_stat1 WHERE tbl = 'usage';
INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES
    ('usage', 'usage', '2000000 700000 130000 350 9 9 3 2 1'),
    ('usage', 'usage_by_owner', '2000000 700000 130000 150 4'),
    ('usage', 'usage_of_account', '400000 130000 600 3'),
    ('usage', 'usage_sums_of_account', '150000 75000 350 3');

-- How often something was tried that may not be tried too often: signing in, having mails sent. By a
-- digest of what is counted, so that no name or address is kept.
CREATE TABLE tallies (
    hash         BLOB    NOT NULL PRIMARY KEY,
    tries        INTEGER NOT NULL,
    last         INTEGER NOT NULL,
    closed_until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX tallies_by_age ON tallies (last);
