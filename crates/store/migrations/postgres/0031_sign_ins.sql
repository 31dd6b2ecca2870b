-- The program that a key was made for by signing in. Other keys have none.
ALTER TABLE keys ADD COLUMN surface TEXT;

-- Refresh tokens of keys that were made by signing in, used ones included: a second use reveals a
-- stolen token. Only the hash of a token is kept.
CREATE TABLE refresh_tokens (
    hash    BYTEA  NOT NULL PRIMARY KEY,
    key_id  TEXT COLLATE "C" NOT NULL REFERENCES keys (id) ON DELETE CASCADE,
    issued  BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    used    BIGINT,
    -- The network that used it.
    used_from TEXT
);
CREATE INDEX refresh_tokens_by_key ON refresh_tokens (key_id);
CREATE INDEX refresh_tokens_by_expiry ON refresh_tokens (expires);
