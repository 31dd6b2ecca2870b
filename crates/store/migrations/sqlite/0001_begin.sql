-- STRICT: a sum that no longer fits an integer is an error, never silently a float.

CREATE TABLE settings (
    name  TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE accounts (
    id            TEXT    NOT NULL PRIMARY KEY,
    username      TEXT    NOT NULL,
    email         TEXT,
    role          TEXT    NOT NULL,
    password_hash TEXT,
    disabled      INTEGER NOT NULL,
    created       INTEGER NOT NULL,
    changed       INTEGER NOT NULL
) STRICT;

-- Usernames and addresses in lower case, in one table: nobody can take another's address as a
-- username and stand in the way of their sign-in.
CREATE TABLE logins (
    login      TEXT NOT NULL PRIMARY KEY,
    account_id TEXT NOT NULL REFERENCES accounts (id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE sessions (
    hash       BLOB    NOT NULL PRIMARY KEY,
    account_id TEXT    NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    created    INTEGER NOT NULL,
    expires    INTEGER NOT NULL,
    seen       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_by_account ON sessions (account_id);
CREATE INDEX sessions_by_expiry ON sessions (expires);

CREATE TABLE keys (
    id          TEXT    NOT NULL PRIMARY KEY,
    account_id  TEXT    NOT NULL REFERENCES accounts (id),
    name        TEXT    NOT NULL,
    hash        BLOB    NOT NULL,
    old_hash    BLOB,
    old_until   INTEGER,
    cap         INTEGER,
    spent       INTEGER NOT NULL,
    models      TEXT    NOT NULL,
    expires     INTEGER,
    revoked     INTEGER,
    rpm         INTEGER,
    tpm         INTEGER,
    concurrency INTEGER,
    ips         TEXT    NOT NULL,
    created     INTEGER NOT NULL,
    changed     INTEGER NOT NULL,
    last_used   INTEGER
) STRICT;
CREATE INDEX keys_by_account ON keys (account_id);
CREATE INDEX keys_by_change ON keys (changed);

-- No reference to keys: a settled call is recorded whatever became of its key.
CREATE TABLE entries (
    request_id       TEXT    NOT NULL PRIMARY KEY,
    key_id           TEXT    NOT NULL,
    account_id       TEXT    NOT NULL,
    started          INTEGER NOT NULL,
    ended            INTEGER NOT NULL,
    first_byte_us    INTEGER,
    dialect          TEXT    NOT NULL,
    model            TEXT    NOT NULL,
    lane             TEXT    NOT NULL,
    attempts         INTEGER NOT NULL,
    stream           INTEGER NOT NULL,
    status           INTEGER NOT NULL,
    outcome          TEXT    NOT NULL,
    input            INTEGER NOT NULL,
    cache_read       INTEGER NOT NULL,
    cache_write      INTEGER NOT NULL,
    cache_write_long INTEGER NOT NULL,
    input_audio      INTEGER NOT NULL,
    input_image      INTEGER NOT NULL,
    output           INTEGER NOT NULL,
    thinking         INTEGER NOT NULL,
    output_audio     INTEGER NOT NULL,
    output_image     INTEGER NOT NULL,
    searches         INTEGER NOT NULL,
    estimated        INTEGER NOT NULL,
    cost             INTEGER NOT NULL,
    borne            INTEGER NOT NULL,
    price_version    TEXT    NOT NULL,
    losses           TEXT    NOT NULL
) STRICT;
CREATE INDEX entries_by_key ON entries (key_id, ended, request_id);
CREATE INDEX entries_by_account ON entries (account_id, ended, request_id);
CREATE INDEX entries_by_end ON entries (ended, request_id);

CREATE TABLE audits (
    id      INTEGER PRIMARY KEY,
    at      INTEGER NOT NULL,
    actor   TEXT    NOT NULL,
    action  TEXT    NOT NULL,
    subject TEXT    NOT NULL,
    detail  TEXT    NOT NULL
) STRICT;
CREATE INDEX audits_by_time ON audits (at, id);
