-- People and groups that an identity provider manages with SCIM (RFC 7643). `identity` is the name of the provider in
-- the configuration. `name_key` is the name in lower case. `profile` is JSON: the parts of the name and the addresses.
-- A person whom the provider deleted keeps a row with the time in `deleted`, so that the same person can come back.
CREATE TABLE scim_users (
    account_id   TEXT    NOT NULL PRIMARY KEY REFERENCES accounts (id) ON DELETE CASCADE,
    identity     TEXT    NOT NULL,
    user_name    TEXT    NOT NULL,
    name_key     TEXT    NOT NULL,
    external_id  TEXT   ,
    display_name TEXT   ,
    display_key  TEXT   ,
    profile      TEXT    NOT NULL,
    created      INTEGER NOT NULL,
    changed      INTEGER NOT NULL,
    deleted      INTEGER
) STRICT;
CREATE UNIQUE INDEX scim_users_by_name ON scim_users (identity, name_key) WHERE deleted IS NULL;
CREATE INDEX scim_users_by_external_id ON scim_users (identity, external_id);
CREATE INDEX scim_users_by_creation ON scim_users (identity, created, account_id);

-- Addresses of these people in lower case, each with its type.
CREATE TABLE scim_emails (
    account_id TEXT    NOT NULL REFERENCES scim_users (account_id) ON DELETE CASCADE,
    address    TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    PRIMARY KEY (account_id, address, kind)
) STRICT;
CREATE INDEX scim_emails_by_address ON scim_emails (address);

CREATE TABLE scim_groups (
    id           TEXT    NOT NULL PRIMARY KEY,
    identity     TEXT    NOT NULL,
    display_name TEXT    NOT NULL,
    name_key     TEXT    NOT NULL,
    external_id  TEXT   ,
    created      INTEGER NOT NULL,
    changed      INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX scim_groups_by_name ON scim_groups (identity, name_key);
CREATE INDEX scim_groups_by_external_id ON scim_groups (identity, external_id);
CREATE INDEX scim_groups_by_creation ON scim_groups (identity, created, id);

CREATE TABLE scim_members (
    group_id   TEXT    NOT NULL REFERENCES scim_groups (id) ON DELETE CASCADE,
    account_id TEXT    NOT NULL REFERENCES scim_users (account_id) ON DELETE CASCADE,
    PRIMARY KEY (group_id, account_id)
) STRICT;
CREATE INDEX scim_members_by_account ON scim_members (account_id);

-- Tokens with which an identity provider signs in, as hashes.
CREATE TABLE scim_tokens (
    id        TEXT    NOT NULL PRIMARY KEY,
    identity  TEXT    NOT NULL,
    hash      BLOB    NOT NULL,
    made_by   TEXT    NOT NULL,
    created   INTEGER NOT NULL,
    expires   INTEGER,
    last_used INTEGER
) STRICT;
CREATE INDEX scim_tokens_by_identity ON scim_tokens (identity);
