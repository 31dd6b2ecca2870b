-- Accounts at certificate authorities that speak ACME (RFC 8555). `id` names the directory and the bound
-- account, and the sealed part is the account with its key.
CREATE TABLE acme_accounts (
    id        TEXT    NOT NULL PRIMARY KEY,
    contacts  TEXT    NOT NULL,
    sealed    BLOB    NOT NULL,
    sealed_by TEXT    NOT NULL
) STRICT;

-- Certificates of listeners, and the state of their orders. `id` names the directory and the domains, and
-- the sealed part is the private key. `version` counts certificates. One node at a time orders: `holder`
-- until `held_until`.
CREATE TABLE acme_certificates (
    id           TEXT    NOT NULL PRIMARY KEY,
    version      INTEGER NOT NULL,
    chain        TEXT,
    sealed       BLOB,
    sealed_by    TEXT,
    begins       INTEGER,
    ends         INTEGER,
    holder       TEXT,
    held_until   INTEGER NOT NULL,
    failures     INTEGER NOT NULL,
    next_attempt INTEGER NOT NULL,
    last_error   TEXT
) STRICT;

-- Answers to challenges of orders that are under way. Every node gives them. `name` is the token of a
-- challenge over HTTP, and the domain of one within TLS.
CREATE TABLE acme_challenges (
    kind    TEXT    NOT NULL,
    name    TEXT    NOT NULL,
    answer  TEXT    NOT NULL,
    expires INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT;
