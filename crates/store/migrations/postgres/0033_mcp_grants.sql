-- Tokens of MCP servers that people connected. `owner` is the gateway, or a team or person by id, and
-- `account_id` is that of the team or person. The label of the sealed tokens names the row, the server and
-- the owner. `version` counts changes, and `refreshing` is the time until which one node renews the tokens.
CREATE TABLE mcp_grants (
    id           TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    server       TEXT COLLATE "C" NOT NULL,
    owner        TEXT COLLATE "C" NOT NULL,
    account_id   TEXT COLLATE "C" REFERENCES accounts (id) ON DELETE CASCADE,
    resource     TEXT   NOT NULL,
    sealed       BYTEA  NOT NULL,
    sealed_by    TEXT   NOT NULL,
    expires      BIGINT,
    is_lost      BIGINT NOT NULL,
    version      BIGINT NOT NULL,
    refreshing   BIGINT,
    connected_by TEXT   NOT NULL,
    created      BIGINT NOT NULL
);
CREATE UNIQUE INDEX mcp_grants_by_owner ON mcp_grants (server, owner);
CREATE INDEX mcp_grants_by_account ON mcp_grants (account_id);

-- Clients that the gateway registered at the authorization servers of MCP servers (RFC 7591).
CREATE TABLE mcp_clients (
    server    TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    issuer    TEXT   NOT NULL,
    redirect  TEXT   NOT NULL,
    sealed    BYTEA  NOT NULL,
    sealed_by TEXT   NOT NULL,
    expires   BIGINT
);
