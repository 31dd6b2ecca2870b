-- Copies of cached contents at providers. `slot` is a lane with one of its credentials.
CREATE TABLE cache_copies (
    content_id TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES cached_contents (id) ON DELETE CASCADE,
    slot       TEXT   NOT NULL,
    name       TEXT   NOT NULL,
    expires    BIGINT NOT NULL
);
