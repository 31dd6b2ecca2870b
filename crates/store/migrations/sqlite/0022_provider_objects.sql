-- Objects that a provider made for a key: containers, files, audio, items of answers. Only the hash
-- of an id is kept. A key may name these objects in later calls, and no other ones.
CREATE TABLE provider_objects (
    hash       BLOB    NOT NULL,
    account_id TEXT    NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    key_id     TEXT    NOT NULL,
    expires    INTEGER NOT NULL,
    PRIMARY KEY (hash, account_id, key_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX provider_objects_by_end ON provider_objects (expires);
