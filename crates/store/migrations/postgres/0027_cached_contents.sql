-- Beginnings of conversations that callers keep here and name in later calls. `body` is empty if the row is
-- sealed.
CREATE TABLE cached_contents (
    id           TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    account_id   TEXT COLLATE "C" NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    key_id       TEXT COLLATE "C" NOT NULL,
    model        TEXT   NOT NULL,
    display_name TEXT,
    body         TEXT   NOT NULL,
    sealed       BYTEA,
    bytes        BIGINT NOT NULL,
    tokens       BIGINT NOT NULL,
    created      BIGINT NOT NULL,
    updated      BIGINT NOT NULL,
    expires      BIGINT NOT NULL
);
CREATE INDEX cached_contents_by_account ON cached_contents (account_id, id);
CREATE INDEX cached_contents_by_key ON cached_contents (key_id);
CREATE INDEX cached_contents_by_expiry ON cached_contents (expires);
-- The row of a key makes its additions wait for each other, so that its limits hold.
CREATE TABLE cached_content_turns (
    key_id TEXT COLLATE "C" NOT NULL PRIMARY KEY
);
