-- Keys that seal conversations, replays, tasks and files, themselves sealed by the vault's key.
CREATE TABLE data_keys (
    id        TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    sealed    BYTEA  NOT NULL,
    sealed_by TEXT   NOT NULL,
    created   BIGINT NOT NULL
);

-- Request and reply of a kept answer, sealed by a data key. `request` and `reply` are then empty; rows
-- from before lie open until they expire.
ALTER TABLE kept ADD COLUMN sealed BYTEA;
