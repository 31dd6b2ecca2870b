-- Objects that a provider made for a key: containers, files, audio, items of answers. Only the hash
-- of an id is kept. A key may name these objects in later calls, and no other ones.
CREATE TABLE provider_objects (
    hash       BYTEA  NOT NULL,
    account_id TEXT COLLATE "C" NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    key_id     TEXT COLLATE "C" NOT NULL,
    expires    BIGINT NOT NULL,
    PRIMARY KEY (hash, account_id, key_id)
);
CREATE INDEX provider_objects_by_end ON provider_objects (expires);
