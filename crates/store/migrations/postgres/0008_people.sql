-- Words that are good for one deed: links in mails, steps of a sign-in. Only their hash is kept.
CREATE TABLE links (
    hash       BYTEA   NOT NULL PRIMARY KEY,
    purpose    TEXT COLLATE "C"    NOT NULL,
    account_id TEXT COLLATE "C" REFERENCES accounts (id) ON DELETE CASCADE,
    data       TEXT    NOT NULL,
    created    BIGINT NOT NULL,
    expires    BIGINT NOT NULL
);
CREATE INDEX links_by_account ON links (account_id);
CREATE INDEX links_by_purpose ON links (purpose, created);
CREATE INDEX links_by_expiry ON links (expires);

-- Who an account is at a provider of identities. The provider's word for someone is worth nothing
-- without the provider's name.
CREATE TABLE identities (
    issuer     TEXT COLLATE "C"    NOT NULL,
    subject    TEXT COLLATE "C"    NOT NULL,
    account_id TEXT COLLATE "C"    NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    label      TEXT    NOT NULL,
    created    BIGINT NOT NULL,
    PRIMARY KEY (issuer, subject)
);
CREATE INDEX identities_by_account ON identities (account_id);

-- What proves an account besides its password: code generators, passkeys, recovery codes (as
-- digests). `counter` is the latest step or count that was used, and nothing before it counts again.
CREATE TABLE factors (
    id         TEXT COLLATE "C"    NOT NULL PRIMARY KEY,
    account_id TEXT COLLATE "C"    NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    kind       TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    secret     BYTEA   NOT NULL,
    counter    BIGINT NOT NULL,
    created    BIGINT NOT NULL,
    used       BIGINT
);
CREATE INDEX factors_by_account ON factors (account_id);
