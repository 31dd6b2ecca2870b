-- Tokens of MCP servers that people connected. `owner` is the gateway, or a team or person by id, and
-- `account_id` is that of the team or person. The label of the sealed tokens names the row, the server and
-- the owner. `version` counts changes, and `refreshing` is the time until which one node renews the tokens.
CREATE TABLE mcp_grants (
    id           TEXT    NOT NULL PRIMARY KEY,
    server       TEXT    NOT NULL,
    owner        TEXT    NOT NULL,
    account_id   TEXT    REFERENCES accounts (id) ON DELETE CASCADE,
    resource     TEXT    NOT NULL,
    sealed       BLOB    NOT NULL,
    sealed_by    TEXT    NOT NULL,
    expires      INTEGER,
    is_lost      INTEGER NOT NULL,
    version      INTEGER NOT NULL,
    refreshing   INTEGER,
    connected_by TEXT    NOT NULL,
    created      INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX mcp_grants_by_owner ON mcp_grants (server, owner);
CREATE INDEX mcp_grants_by_account ON mcp_grants (account_id);

-- Clients that the gateway registered at the authorization servers of MCP servers (RFC 7591).
CREATE TABLE mcp_clients (
    server    TEXT    NOT NULL PRIMARY KEY,
    issuer    TEXT    NOT NULL,
    redirect  TEXT    NOT NULL,
    sealed    BLOB    NOT NULL,
    sealed_by TEXT    NOT NULL,
    expires   INTEGER
) STRICT;
