-- Rows lie by time first: what is asked for is a stretch of time, whose rows then lie side by side
-- however many years there are, and what is added to is the end of each.
ALTER TABLE usage DROP CONSTRAINT usage_pkey;
ALTER TABLE usage ADD PRIMARY KEY (span, scope, begun, owner, account_id, model, lane, status);
DROP INDEX usage_by_time;
CREATE INDEX usage_by_owner ON usage (span, scope, owner, begun);

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

-- How often something was tried that may not be tried too often: signing in, having mails sent. By a
-- digest of what is counted, so that no name or address is kept.
CREATE TABLE tallies (
    hash         BYTEA  NOT NULL PRIMARY KEY,
    tries        BIGINT NOT NULL,
    last         BIGINT NOT NULL,
    closed_until BIGINT NOT NULL
);
CREATE INDEX tallies_by_age ON tallies (last);
