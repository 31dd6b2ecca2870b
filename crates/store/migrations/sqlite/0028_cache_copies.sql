-- Copies of cached contents at providers. `slot` is a lane with one of its credentials.
CREATE TABLE cache_copies (
    content_id TEXT    NOT NULL PRIMARY KEY REFERENCES cached_contents (id) ON DELETE CASCADE,
    slot       TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    expires    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
