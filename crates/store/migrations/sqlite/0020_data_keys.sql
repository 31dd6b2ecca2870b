-- Keys that seal conversations, replays, tasks and files, themselves sealed by the vault's key.
CREATE TABLE data_keys (
    id        TEXT    NOT NULL PRIMARY KEY,
    sealed    BLOB    NOT NULL,
    sealed_by TEXT    NOT NULL,
    created   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Request and reply of a kept answer, sealed by a data key. `request` and `reply` are then empty; rows
-- from before lie open until they expire.
ALTER TABLE kept ADD COLUMN sealed BLOB;
