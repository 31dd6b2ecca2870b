-- Providers and models that administrators configured while the gateway ran, as JSON with the words
-- of the configuration file.
CREATE TABLE configured (
    kind     TEXT    NOT NULL,
    id       TEXT    NOT NULL,
    settings TEXT    NOT NULL,
    created  INTEGER NOT NULL,
    changed  INTEGER NOT NULL,
    PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;

-- What proves us to such a provider, sealed by a key that is not in this database. `place` is where
-- the provider was when the credential was given: it is for nowhere else.
CREATE TABLE credentials (
    id          TEXT    NOT NULL PRIMARY KEY,
    provider_id TEXT    NOT NULL,
    name        TEXT    NOT NULL,
    place       TEXT    NOT NULL,
    sealed      BLOB    NOT NULL,
    sealed_by   TEXT    NOT NULL,
    created     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX credentials_by_provider ON credentials (provider_id, created);

-- One number that moves with every change of the tables above, so that nodes ask for that alone.
CREATE TABLE revisions (
    name   TEXT    NOT NULL PRIMARY KEY,
    number INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO revisions (name, number) VALUES ('places', 0);

-- Which key sealed the secret of a code generator; one from before lies open.
ALTER TABLE factors ADD COLUMN sealed_by TEXT;
