-- Providers and models that administrators configured while the gateway ran, as JSON with the words
-- of the configuration file.
CREATE TABLE configured (
    kind     TEXT COLLATE "C"    NOT NULL,
    id       TEXT COLLATE "C"    NOT NULL,
    settings TEXT    NOT NULL,
    created  BIGINT NOT NULL,
    changed  BIGINT NOT NULL,
    PRIMARY KEY (kind, id)
);

-- What proves us to such a provider, sealed by a key that is not in this database. `place` is where
-- the provider was when the credential was given: it is for nowhere else.
CREATE TABLE credentials (
    id          TEXT COLLATE "C"    NOT NULL PRIMARY KEY,
    provider_id TEXT COLLATE "C"    NOT NULL,
    name        TEXT    NOT NULL,
    place       TEXT    NOT NULL,
    sealed      BYTEA   NOT NULL,
    sealed_by   TEXT    NOT NULL,
    created     BIGINT NOT NULL
);
CREATE INDEX credentials_by_provider ON credentials (provider_id, created);

-- One number that moves with every change of the tables above, so that nodes ask for that alone.
CREATE TABLE revisions (
    name   TEXT COLLATE "C"    NOT NULL PRIMARY KEY,
    number BIGINT NOT NULL
);
INSERT INTO revisions (name, number) VALUES ('places', 0);

-- Which key sealed the secret of a code generator; one from before lies open.
ALTER TABLE factors ADD COLUMN sealed_by TEXT;
