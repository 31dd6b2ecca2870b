-- The program that a key was made for by signing in. Other keys have none.
ALTER TABLE keys ADD COLUMN surface TEXT;

-- Refresh tokens of keys that were made by signing in, used ones included: a second use reveals a
-- stolen token. Only the hash of a token is kept.
CREATE TABLE refresh_tokens (
    hash    BLOB    NOT NULL PRIMARY KEY,
    key_id  TEXT    NOT NULL REFERENCES keys (id) ON DELETE CASCADE,
    issued  INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    used    INTEGER,
    -- The network that used it.
    used_from TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX refresh_tokens_by_key ON refresh_tokens (key_id);
CREATE INDEX refresh_tokens_by_expiry ON refresh_tokens (expires);
