-- What a key may spend per day, week or month; both or none.
ALTER TABLE keys ADD COLUMN budget BIGINT;
ALTER TABLE keys ADD COLUMN budget_period TEXT;

-- What each key's calls cost by the day they were admitted on, in days since 1970: a period's sum
-- is read at once, however many calls there were.
CREATE TABLE key_days (
    key_id TEXT COLLATE "C" NOT NULL,
    day    BIGINT NOT NULL,
    cost   BIGINT NOT NULL,
    PRIMARY KEY (key_id, day)
);
INSERT INTO key_days (key_id, day, cost)
    SELECT key_id, started / 86400000000, SUM(cost) FROM entries
    WHERE started >= 0 GROUP BY key_id, started / 86400000000;

-- Calls with an idempotency key: claimed by whoever runs them until `held_until`, and once there is
-- a status, over. Without a body the answer was too large to be kept.
CREATE TABLE idempotent (
    account_id TEXT COLLATE "C" NOT NULL REFERENCES accounts (id),
    name       TEXT COLLATE "C" NOT NULL,
    hash       BYTEA NOT NULL,
    owner      TEXT NOT NULL,
    held_until BIGINT NOT NULL,
    expires    BIGINT NOT NULL,
    status     BIGINT,
    headers    TEXT,
    body       BYTEA,
    PRIMARY KEY (account_id, name)
);
CREATE INDEX idempotent_by_expiry ON idempotent (expires);
