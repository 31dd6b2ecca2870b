-- Conversations that callers keep here. `next` is the position of the next item, `bytes` the size of all items.
CREATE TABLE conversations (
    id         TEXT    NOT NULL PRIMARY KEY,
    account_id TEXT    NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    key_id     TEXT    NOT NULL,
    metadata   TEXT    NOT NULL,
    next       INTEGER NOT NULL,
    bytes      INTEGER NOT NULL,
    created    INTEGER NOT NULL,
    expires    INTEGER NOT NULL
) STRICT;
CREATE INDEX conversations_by_account ON conversations (account_id);
CREATE INDEX conversations_by_key ON conversations (key_id);
CREATE INDEX conversations_by_expiry ON conversations (expires);
-- `body` is empty if the row is sealed.
CREATE TABLE conversation_items (
    conversation_id TEXT    NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    position        INTEGER NOT NULL,
    id              TEXT    NOT NULL,
    body            TEXT    NOT NULL,
    sealed          BLOB,
    bytes           INTEGER NOT NULL,
    PRIMARY KEY (conversation_id, position)
) STRICT;
CREATE UNIQUE INDEX conversation_items_by_id ON conversation_items (conversation_id, id);
