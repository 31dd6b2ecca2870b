-- COLLATE "C" on whatever is sorted or paged by: the order must not depend on the server's locale.

CREATE TABLE settings (
    name  TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
);

CREATE TABLE accounts (
    id            TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    username      TEXT    NOT NULL,
    email         TEXT,
    role          TEXT    NOT NULL,
    password_hash TEXT,
    disabled      BOOLEAN NOT NULL,
    created       BIGINT  NOT NULL,
    changed       BIGINT  NOT NULL
);

-- Usernames and addresses in lower case, in one table: nobody can take another's address as a
-- username and stand in the way of their sign-in.
CREATE TABLE logins (
    login      TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    account_id TEXT COLLATE "C" NOT NULL REFERENCES accounts (id) ON DELETE CASCADE
);

CREATE TABLE sessions (
    hash       BYTEA   NOT NULL PRIMARY KEY,
    account_id TEXT COLLATE "C" NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    created    BIGINT  NOT NULL,
    expires    BIGINT  NOT NULL,
    seen       BIGINT  NOT NULL
);
CREATE INDEX sessions_by_account ON sessions (account_id);
CREATE INDEX sessions_by_expiry ON sessions (expires);

CREATE TABLE keys (
    id          TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    account_id  TEXT COLLATE "C" NOT NULL REFERENCES accounts (id),
    name        TEXT    NOT NULL,
    hash        BYTEA   NOT NULL,
    old_hash    BYTEA,
    old_until   BIGINT,
    cap         BIGINT,
    spent       BIGINT  NOT NULL,
    models      TEXT    NOT NULL,
    expires     BIGINT,
    revoked     BIGINT,
    rpm         BIGINT,
    tpm         BIGINT,
    concurrency BIGINT,
    ips         TEXT    NOT NULL,
    created     BIGINT  NOT NULL,
    changed     BIGINT  NOT NULL,
    last_used   BIGINT
);
CREATE INDEX keys_by_account ON keys (account_id);
CREATE INDEX keys_by_change ON keys (changed);

-- No reference to keys: a settled call is recorded whatever became of its key.
CREATE TABLE entries (
    request_id       TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    key_id           TEXT COLLATE "C" NOT NULL,
    account_id       TEXT COLLATE "C" NOT NULL,
    started          BIGINT  NOT NULL,
    ended            BIGINT  NOT NULL,
    first_byte_us    BIGINT,
    dialect          TEXT    NOT NULL,
    model            TEXT    NOT NULL,
    lane             TEXT    NOT NULL,
    attempts         BIGINT  NOT NULL,
    stream           BOOLEAN NOT NULL,
    status           BIGINT  NOT NULL,
    outcome          TEXT    NOT NULL,
    input            BIGINT  NOT NULL,
    cache_read       BIGINT  NOT NULL,
    cache_write      BIGINT  NOT NULL,
    cache_write_long BIGINT  NOT NULL,
    input_audio      BIGINT  NOT NULL,
    input_image      BIGINT  NOT NULL,
    output           BIGINT  NOT NULL,
    thinking         BIGINT  NOT NULL,
    output_audio     BIGINT  NOT NULL,
    output_image     BIGINT  NOT NULL,
    searches         BIGINT  NOT NULL,
    estimated        BOOLEAN NOT NULL,
    cost             BIGINT  NOT NULL,
    borne            BIGINT  NOT NULL,
    price_version    TEXT    NOT NULL,
    losses           TEXT    NOT NULL
);
CREATE INDEX entries_by_key ON entries (key_id, ended, request_id);
CREATE INDEX entries_by_account ON entries (account_id, ended, request_id);
CREATE INDEX entries_by_end ON entries (ended, request_id);

CREATE TABLE audits (
    id      BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      BIGINT  NOT NULL,
    actor   TEXT    NOT NULL,
    action  TEXT    NOT NULL,
    subject TEXT    NOT NULL,
    detail  TEXT    NOT NULL
);
CREATE INDEX audits_by_time ON audits (at, id);
