-- Accounts at certificate authorities that speak ACME (RFC 8555). `id` names the directory and the bound
-- account, and the sealed part is the account with its key.
CREATE TABLE acme_accounts (
    id        TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    contacts  TEXT    NOT NULL,
    sealed    BYTEA   NOT NULL,
    sealed_by TEXT    NOT NULL
);

-- Certificates of listeners, and the state of their orders. `id` names the directory and the domains, and
-- the sealed part is the private key. `version` counts certificates. One node at a time orders: `holder`
-- until `held_until`.
CREATE TABLE acme_certificates (
    id           TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version      BIGINT NOT NULL,
    chain        TEXT,
    sealed       BYTEA,
    sealed_by    TEXT,
    begins       BIGINT,
    ends         BIGINT,
    holder       TEXT,
    held_until   BIGINT NOT NULL,
    failures     BIGINT NOT NULL,
    next_attempt BIGINT NOT NULL,
    last_error   TEXT
);

-- Answers to challenges of orders that are under way. Every node gives them. `name` is the token of a
-- challenge over HTTP, and the domain of one within TLS.
CREATE TABLE acme_challenges (
    kind    TEXT COLLATE "C" NOT NULL,
    name    TEXT COLLATE "C" NOT NULL,
    answer  TEXT    NOT NULL,
    expires BIGINT NOT NULL,
    PRIMARY KEY (kind, name)
);
