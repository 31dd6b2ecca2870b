-- Conversations that callers keep here. `next` is the position of the next item, `bytes` the size of all items.
CREATE TABLE conversations (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    account_id TEXT COLLATE "C" NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    key_id     TEXT COLLATE "C" NOT NULL,
    metadata   TEXT   NOT NULL,
    next       BIGINT NOT NULL,
    bytes      BIGINT NOT NULL,
    created    BIGINT NOT NULL,
    expires    BIGINT NOT NULL
);
CREATE INDEX conversations_by_account ON conversations (account_id);
CREATE INDEX conversations_by_key ON conversations (key_id);
CREATE INDEX conversations_by_expiry ON conversations (expires);
-- `body` is empty if the row is sealed.
CREATE TABLE conversation_items (
    conversation_id TEXT COLLATE "C" NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    position        BIGINT NOT NULL,
    id              TEXT COLLATE "C" NOT NULL,
    body            TEXT   NOT NULL,
    sealed          BYTEA,
    bytes           BIGINT NOT NULL,
    PRIMARY KEY (conversation_id, position)
);
CREATE UNIQUE INDEX conversation_items_by_id ON conversation_items (conversation_id, id);
