-- Posted calls in blocks: those of a batch side by side in one row, as `call_block.rs` encodes them. A row
-- of 39 columns and five entries of indexes for each call took ten times the work and five times the
-- space. `ended` is the latest end of a call in the block; none in it ended more than 250 ms before.
CREATE TABLE call_blocks (
    id    INTEGER PRIMARY KEY,
    ended INTEGER NOT NULL,
    body  BLOB    NOT NULL
) STRICT;
CREATE INDEX call_blocks_by_end ON call_blocks (ended);
-- The block of each call, by the number of its id (`compact_text.rs`). If another call has that number, it
-- has the next free one. So the first number of a posted call is always taken, and no call is posted twice.
CREATE TABLE call_ids (
    id    INTEGER PRIMARY KEY,
    block INTEGER NOT NULL
) STRICT;
-- The blocks with calls of an owner: 1 a key, 2 an account, 3 a model.
CREATE TABLE call_owners (
    kind  INTEGER NOT NULL,
    owner BLOB    NOT NULL,
    ended INTEGER NOT NULL,
    block INTEGER NOT NULL,
    PRIMARY KEY (kind, owner, ended, block)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER call_blocks_stay_as_they_are BEFORE UPDATE ON call_blocks
    BEGIN SELECT RAISE(ABORT, 'a settled call is never changed'); END;
CREATE TRIGGER call_blocks_stay BEFORE DELETE ON call_blocks
    BEGIN SELECT RAISE(ABORT, 'a settled call is never forgotten'); END;
CREATE TRIGGER call_ids_stay_as_they_are BEFORE UPDATE ON call_ids
    BEGIN SELECT RAISE(ABORT, 'a settled call is never changed'); END;
CREATE TRIGGER call_ids_stay BEFORE DELETE ON call_ids
    BEGIN SELECT RAISE(ABORT, 'a settled call is never forgotten'); END;
CREATE VIEW call_guards AS SELECT name FROM sqlite_master
    WHERE type = 'trigger' AND tbl_name IN ('call_blocks', 'call_ids');

-- The rows so far. The program moves them into blocks when it opens the database.
DROP VIEW entry_guards;
DROP TRIGGER entries_stay_as_they_are;
DROP TRIGGER entries_stay;
DROP INDEX entries_by_key;
DROP INDEX entries_by_account;
DROP INDEX entries_by_model;
ALTER TABLE entries RENAME TO old_entries;
