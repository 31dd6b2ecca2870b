-- What a key may spend per day, week or month; both or none.
ALTER TABLE keys ADD COLUMN budget INTEGER;
ALTER TABLE keys ADD COLUMN budget_period TEXT;

-- What each key's calls cost by the day they were admitted on, in days since 1970: a period's sum
-- is read at once, however many calls there were.
CREATE TABLE key_days (
    key_id TEXT NOT NULL,
    day    INTEGER NOT NULL,
    cost   INTEGER NOT NULL,
    PRIMARY KEY (key_id, day)
) STRICT, WITHOUT ROWID;
INSERT INTO key_days (key_id, day, cost)
    SELECT key_id, started / 86400000000, SUM(cost) FROM entries
    WHERE started >= 0 GROUP BY key_id, started / 86400000000;

-- Calls with an idempotency key: claimed by whoever runs them until `held_until`, and once there is
-- a status, over. Without a body the answer was too large to be kept.
CREATE TABLE idempotent (
    account_id TEXT NOT NULL REFERENCES accounts (id),
    name       TEXT NOT NULL,
    hash       BLOB NOT NULL,
    owner      TEXT NOT NULL,
    held_until INTEGER NOT NULL,
    expires    INTEGER NOT NULL,
    status     INTEGER,
    headers    TEXT,
    body       BLOB,
    PRIMARY KEY (account_id, name)
) STRICT;
CREATE INDEX idempotent_by_expiry ON idempotent (expires);
