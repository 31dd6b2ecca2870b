-- Answers kept for later calls: the conversation up to an answer, and the answer itself.
CREATE TABLE kept (
    id         TEXT   NOT NULL PRIMARY KEY,
    account_id TEXT   NOT NULL REFERENCES accounts (id),
    request    TEXT   NOT NULL,
    reply      TEXT   NOT NULL,
    created    BIGINT NOT NULL,
    expires    BIGINT NOT NULL
);
CREATE INDEX kept_by_expiry ON kept (expires);
