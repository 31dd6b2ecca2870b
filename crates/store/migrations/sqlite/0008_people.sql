-- Words that are good for one deed: links in mails, steps of a sign-in. Only their hash is kept.
CREATE TABLE links (
    hash       BLOB    NOT NULL PRIMARY KEY,
    purpose    TEXT    NOT NULL,
    account_id TEXT REFERENCES accounts (id) ON DELETE CASCADE,
    data       TEXT    NOT NULL,
    created    INTEGER NOT NULL,
    expires    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX links_by_account ON links (account_id);
CREATE INDEX links_by_purpose ON links (purpose, created);
CREATE INDEX links_by_expiry ON links (expires);

-- Who an account is at a provider of identities. The provider's word for someone is worth nothing
-- without the provider's name.
CREATE TABLE identities (
    issuer     TEXT    NOT NULL,
    subject    TEXT    NOT NULL,
    account_id TEXT    NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    label      TEXT    NOT NULL,
    created    INTEGER NOT NULL,
    PRIMARY KEY (issuer, subject)
) STRICT, WITHOUT ROWID;
CREATE INDEX identities_by_account ON identities (account_id);

-- What proves an account besides its password: code generators, passkeys, recovery codes (as
-- digests). `counter` is the latest step or count that was used, and nothing before it counts again.
CREATE TABLE factors (
    id         TEXT    NOT NULL PRIMARY KEY,
    account_id TEXT    NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    kind       TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    secret     BLOB    NOT NULL,
    counter    INTEGER NOT NULL,
    created    INTEGER NOT NULL,
    used       INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX factors_by_account ON factors (account_id);
