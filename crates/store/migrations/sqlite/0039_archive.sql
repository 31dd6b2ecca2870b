-- expands: the guards of calls become looser, and nothing is archived before an operator asks for it.
-- Old calls leave the database in parts: a part is planned, its file is written, its blocks are removed in small
-- transactions. The sums of removed calls stay, so that the books balance at every instant.

-- `state`: 'writing' until the file is complete and durable, 'written' while blocks are removed, 'removed' after
-- that. `place` and `file` are empty if calls are deleted without a file.
CREATE TABLE archive_parts (
    id            INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    state         TEXT    NOT NULL,
    created       INTEGER NOT NULL,
    begun         INTEGER NOT NULL,
    ended         INTEGER NOT NULL,
    place         TEXT    NOT NULL,
    file          TEXT    NOT NULL,
    sha256        TEXT    NOT NULL,
    bytes         INTEGER NOT NULL,
    calls         INTEGER NOT NULL,
    cost          INTEGER NOT NULL,
    borne         INTEGER NOT NULL,
    removed_calls INTEGER NOT NULL,
    removed_cost  INTEGER NOT NULL
) STRICT;
-- The blocks of parts that are not removed yet. Only these may be deleted.
CREATE TABLE archive_blocks (
    block INTEGER NOT NULL PRIMARY KEY,
    part  INTEGER NOT NULL REFERENCES archive_parts (id)
) STRICT;
CREATE INDEX archive_blocks_by_part ON archive_blocks (part, block);
-- The corrected calls in these blocks.
CREATE TABLE archive_corrections (
    request_id TEXT    NOT NULL PRIMARY KEY,
    block      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX archive_corrections_by_block ON archive_corrections (block);
-- Sums of the removed calls, which stay for ever.
CREATE TABLE archived_calls (
    key_id     TEXT    NOT NULL,
    account_id TEXT    NOT NULL,
    calls      INTEGER NOT NULL,
    cost       INTEGER NOT NULL,
    borne      INTEGER NOT NULL,
    input      INTEGER NOT NULL,
    output     INTEGER NOT NULL,
    PRIMARY KEY (key_id, account_id)
) STRICT, WITHOUT ROWID;
-- Hashes of the ids of removed calls, eight bytes each and sorted, so that none is posted a second time.
CREATE TABLE archived_ids (
    id            INTEGER NOT NULL PRIMARY KEY,
    first_started INTEGER NOT NULL,
    last_started  INTEGER NOT NULL,
    hashes        BLOB    NOT NULL
) STRICT;
CREATE INDEX archived_ids_by_start ON archived_ids (last_started, first_started);
-- The part of each session's sums whose calls are removed.
CREATE TABLE archived_sessions (
    session    TEXT    NOT NULL,
    key_id     TEXT    NOT NULL,
    model      TEXT    NOT NULL,
    lane       TEXT    NOT NULL,
    account_id TEXT    NOT NULL,
    begun      INTEGER NOT NULL,
    ended      INTEGER NOT NULL,
    calls      INTEGER NOT NULL,
    input      INTEGER NOT NULL,
    cache_read INTEGER NOT NULL,
    output     INTEGER NOT NULL,
    thinking   INTEGER NOT NULL,
    cost       INTEGER NOT NULL,
    absorbed   INTEGER NOT NULL,
    PRIMARY KEY (session, key_id, model, lane)
) STRICT, WITHOUT ROWID;
CREATE INDEX archived_sessions_by_account ON archived_sessions (account_id);
-- Latest admission of a planned call of the key. A call that was admitted later cannot be archived.
ALTER TABLE keys ADD COLUMN archived_until INTEGER;

-- Accounts whose personal data are erased. `done` is set when no session of a caller is left in the calls.
CREATE TABLE erasures (
    account_id TEXT    NOT NULL PRIMARY KEY,
    begun      INTEGER NOT NULL,
    done       INTEGER
) STRICT, WITHOUT ROWID;
-- Blocks and corrected calls that the current transaction may rewrite without the sessions of an account.
CREATE TABLE erased_blocks (
    block INTEGER NOT NULL PRIMARY KEY
) STRICT;
CREATE TABLE erased_corrections (
    request_id TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;

DROP TRIGGER call_blocks_stay_as_they_are;
DROP TRIGGER call_blocks_stay;
DROP TRIGGER call_ids_stay;
DROP TRIGGER corrections_stay_as_they_are;
DROP TRIGGER corrections_stay;
CREATE TRIGGER call_blocks_stay_as_they_are BEFORE UPDATE ON call_blocks
    WHEN NEW.id <> OLD.id OR NEW.ended <> OLD.ended
    OR NOT EXISTS (SELECT 1 FROM erased_blocks WHERE block = OLD.id)
    BEGIN SELECT RAISE(ABORT, 'a settled call is never changed'); END;
CREATE TRIGGER call_blocks_stay BEFORE DELETE ON call_blocks
    WHEN NOT EXISTS (SELECT 1 FROM archive_blocks a JOIN archive_parts p ON p.id = a.part
    WHERE a.block = OLD.id AND p.state = 'written')
    BEGIN SELECT RAISE(ABORT, 'a settled call is never forgotten before it is archived'); END;
CREATE TRIGGER call_ids_stay BEFORE DELETE ON call_ids
    WHEN NOT EXISTS (SELECT 1 FROM archive_blocks a JOIN archive_parts p ON p.id = a.part
    WHERE a.block = OLD.block AND p.state = 'written')
    BEGIN SELECT RAISE(ABORT, 'a settled call is never forgotten before it is archived'); END;
CREATE TRIGGER corrections_stay_as_they_are BEFORE UPDATE ON corrections
    WHEN NEW.request_id <> OLD.request_id OR NEW.number <> OLD.number OR NEW.at <> OLD.at
    OR NEW.key_id <> OLD.key_id OR NEW.account_id <> OLD.account_id
    OR NEW.knowledge <> OLD.knowledge OR NEW.cost <> OLD.cost OR NEW.borne <> OLD.borne
    OR NEW.input <> OLD.input OR NEW.output <> OLD.output
    OR NOT EXISTS (SELECT 1 FROM erased_corrections WHERE request_id = OLD.request_id)
    BEGIN SELECT RAISE(ABORT, 'a settled call is never changed'); END;
CREATE TRIGGER corrections_stay BEFORE DELETE ON corrections
    WHEN NOT EXISTS (SELECT 1 FROM archive_corrections c JOIN archive_blocks a ON a.block = c.block
    JOIN archive_parts p ON p.id = a.part
    WHERE c.request_id = OLD.request_id AND p.state = 'written')
    BEGIN SELECT RAISE(ABORT, 'a settled call is never forgotten before it is archived'); END;
CREATE TRIGGER archived_calls_stay BEFORE DELETE ON archived_calls
    BEGIN SELECT RAISE(ABORT, 'the sums of archived calls are kept for ever'); END;
CREATE TRIGGER archived_ids_stay BEFORE DELETE ON archived_ids
    BEGIN SELECT RAISE(ABORT, 'the ids of archived calls are kept for ever'); END;
CREATE TRIGGER archive_parts_stay BEFORE DELETE ON archive_parts
    BEGIN SELECT RAISE(ABORT, 'the record of an archive is kept for ever'); END;
CREATE VIEW archive_guards AS SELECT name FROM sqlite_master WHERE type = 'trigger'
    AND tbl_name IN ('archived_calls', 'archived_ids', 'archive_parts');
