-- Posted calls in blocks: those of a batch side by side in one row, as `call_block.rs` encodes them. A row
-- of 39 columns and five entries of indexes for each call took ten times the work and five times the
-- space. `ended` is the latest end of a call in the block; none in it ended more than 250 ms before.
CREATE TABLE call_blocks (
    id    BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ended BIGINT NOT NULL,
    body  BYTEA  NOT NULL
);
CREATE INDEX call_blocks_by_end ON call_blocks (ended, id);
-- The block of each call, by the number of its id (`compact_text.rs`). If another call has that number, it
-- has the next free one. So the first number of a posted call is always taken, and no call is posted twice.
CREATE TABLE call_ids (
    id    BIGINT NOT NULL PRIMARY KEY,
    block BIGINT NOT NULL
);
-- The blocks with calls of an owner: 1 a key, 2 an account, 3 a model.
CREATE TABLE call_owners (
    kind  BIGINT NOT NULL,
    owner BYTEA  NOT NULL,
    ended BIGINT NOT NULL,
    block BIGINT NOT NULL,
    PRIMARY KEY (kind, owner, ended, block)
);
CREATE FUNCTION keep_calls() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'a settled call is never changed or forgotten'; END $$;
CREATE TRIGGER call_blocks_stay_as_they_are BEFORE UPDATE ON call_blocks
    FOR EACH STATEMENT EXECUTE FUNCTION keep_calls();
CREATE TRIGGER call_blocks_stay BEFORE DELETE OR TRUNCATE ON call_blocks
    FOR EACH STATEMENT EXECUTE FUNCTION keep_calls();
CREATE TRIGGER call_ids_stay_as_they_are BEFORE UPDATE ON call_ids
    FOR EACH STATEMENT EXECUTE FUNCTION keep_calls();
CREATE TRIGGER call_ids_stay BEFORE DELETE OR TRUNCATE ON call_ids
    FOR EACH STATEMENT EXECUTE FUNCTION keep_calls();
CREATE VIEW call_guards AS
    SELECT CAST(tgname AS TEXT) AS name FROM pg_trigger
    WHERE tgrelid IN ('call_blocks'::regclass, 'call_ids'::regclass)
    AND NOT tgisinternal AND tgenabled IN ('O', 'A');

-- The rows so far. The program moves them into blocks when it opens the database.
DROP VIEW entry_guards;
DROP FUNCTION keep_entries() CASCADE;
DROP INDEX entries_by_key;
DROP INDEX entries_by_account;
DROP INDEX entries_by_model;
ALTER TABLE entries RENAME TO old_entries;
