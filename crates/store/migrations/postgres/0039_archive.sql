-- expands: the guards of calls become looser, and nothing is archived before an operator asks for it.
-- Old calls leave the database in parts: a part is planned, its file is written, its blocks are removed in small
-- transactions. The sums of removed calls stay, so that the books balance at every instant.

-- `state`: 'writing' until the file is complete and durable, 'written' while blocks are removed, 'removed' after
-- that. `place` and `file` are empty if calls are deleted without a file.
CREATE TABLE archive_parts (
    id            BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    state         TEXT   NOT NULL,
    created       BIGINT NOT NULL,
    begun         BIGINT NOT NULL,
    ended         BIGINT NOT NULL,
    place         TEXT   NOT NULL,
    file          TEXT   NOT NULL,
    sha256        TEXT   NOT NULL,
    bytes         BIGINT NOT NULL,
    calls         BIGINT NOT NULL,
    cost          BIGINT NOT NULL,
    borne         BIGINT NOT NULL,
    removed_calls BIGINT NOT NULL,
    removed_cost  BIGINT NOT NULL
);
-- The blocks of parts that are not removed yet. Only these may be deleted.
CREATE TABLE archive_blocks (
    block BIGINT NOT NULL PRIMARY KEY,
    part  BIGINT NOT NULL REFERENCES archive_parts (id)
);
CREATE INDEX archive_blocks_by_part ON archive_blocks (part, block);
-- The corrected calls in these blocks.
CREATE TABLE archive_corrections (
    request_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    block      BIGINT NOT NULL
);
CREATE INDEX archive_corrections_by_block ON archive_corrections (block);
-- Sums of the removed calls, which stay for ever.
CREATE TABLE archived_calls (
    key_id     TEXT COLLATE "C" NOT NULL,
    account_id TEXT COLLATE "C" NOT NULL,
    calls      BIGINT NOT NULL,
    cost       BIGINT NOT NULL,
    borne      BIGINT NOT NULL,
    input      BIGINT NOT NULL,
    output     BIGINT NOT NULL,
    PRIMARY KEY (key_id, account_id)
);
-- Hashes of the ids of removed calls, eight bytes each and sorted, so that none is posted a second time.
CREATE TABLE archived_ids (
    id            BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    first_started BIGINT NOT NULL,
    last_started  BIGINT NOT NULL,
    hashes        BYTEA  NOT NULL
);
CREATE INDEX archived_ids_by_start ON archived_ids (last_started, first_started);
-- The part of each session's sums whose calls are removed.
CREATE TABLE archived_sessions (
    session    TEXT COLLATE "C" NOT NULL,
    key_id     TEXT COLLATE "C" NOT NULL,
    model      TEXT COLLATE "C" NOT NULL,
    lane       TEXT COLLATE "C" NOT NULL,
    account_id TEXT COLLATE "C" NOT NULL,
    begun      BIGINT NOT NULL,
    ended      BIGINT NOT NULL,
    calls      BIGINT NOT NULL,
    input      BIGINT NOT NULL,
    cache_read BIGINT NOT NULL,
    output     BIGINT NOT NULL,
    thinking   BIGINT NOT NULL,
    cost       BIGINT NOT NULL,
    absorbed   BIGINT NOT NULL,
    PRIMARY KEY (session, key_id, model, lane)
);
CREATE INDEX archived_sessions_by_account ON archived_sessions (account_id);
-- Latest admission of a planned call of the key. A call that was admitted later cannot be archived.
ALTER TABLE keys ADD COLUMN archived_until BIGINT;

-- Accounts whose personal data are erased. `done` is set when no session of a caller is left in the calls.
CREATE TABLE erasures (
    account_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    begun      BIGINT NOT NULL,
    done       BIGINT
);
-- Blocks and corrected calls that the current transaction may rewrite without the sessions of an account.
CREATE TABLE erased_blocks (
    block BIGINT NOT NULL PRIMARY KEY
);
CREATE TABLE erased_corrections (
    request_id TEXT COLLATE "C" NOT NULL PRIMARY KEY
);

DROP TRIGGER call_blocks_stay_as_they_are ON call_blocks;
DROP TRIGGER call_blocks_stay ON call_blocks;
DROP TRIGGER call_ids_stay ON call_ids;
DROP TRIGGER corrections_stay_as_they_are ON corrections;
DROP TRIGGER corrections_stay ON corrections;
CREATE FUNCTION keep_block_content() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.id <> OLD.id OR NEW.ended <> OLD.ended
        OR NOT EXISTS (SELECT 1 FROM erased_blocks WHERE block = OLD.id) THEN
        RAISE EXCEPTION 'a settled call is never changed';
    END IF;
    RETURN NEW;
END $$;
CREATE FUNCTION keep_unarchived_blocks() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NOT EXISTS (SELECT 1 FROM archive_blocks a JOIN archive_parts p ON p.id = a.part
        WHERE a.block = OLD.id AND p.state = 'written') THEN
        RAISE EXCEPTION 'a settled call is never forgotten before it is archived';
    END IF;
    RETURN OLD;
END $$;
CREATE FUNCTION keep_unarchived_ids() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NOT EXISTS (SELECT 1 FROM archive_blocks a JOIN archive_parts p ON p.id = a.part
        WHERE a.block = OLD.block AND p.state = 'written') THEN
        RAISE EXCEPTION 'a settled call is never forgotten before it is archived';
    END IF;
    RETURN OLD;
END $$;
CREATE FUNCTION keep_correction_content() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF (NEW.request_id, NEW.number, NEW.at, NEW.key_id, NEW.account_id, NEW.knowledge, NEW.cost,
        NEW.borne, NEW.input, NEW.output) IS DISTINCT FROM (OLD.request_id, OLD.number, OLD.at,
        OLD.key_id, OLD.account_id, OLD.knowledge, OLD.cost, OLD.borne, OLD.input, OLD.output)
        OR NOT EXISTS (SELECT 1 FROM erased_corrections WHERE request_id = OLD.request_id) THEN
        RAISE EXCEPTION 'a settled call is never changed';
    END IF;
    RETURN NEW;
END $$;
CREATE FUNCTION keep_unarchived_corrections() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NOT EXISTS (SELECT 1 FROM archive_corrections c JOIN archive_blocks a ON a.block = c.block
        JOIN archive_parts p ON p.id = a.part
        WHERE c.request_id = OLD.request_id AND p.state = 'written') THEN
        RAISE EXCEPTION 'a settled call is never forgotten before it is archived';
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER call_blocks_stay_as_they_are BEFORE UPDATE ON call_blocks
    FOR EACH ROW EXECUTE FUNCTION keep_block_content();
CREATE TRIGGER call_blocks_stay BEFORE DELETE ON call_blocks
    FOR EACH ROW EXECUTE FUNCTION keep_unarchived_blocks();
CREATE TRIGGER call_blocks_stay_whole BEFORE TRUNCATE ON call_blocks
    FOR EACH STATEMENT EXECUTE FUNCTION keep_calls();
CREATE TRIGGER call_ids_stay BEFORE DELETE ON call_ids
    FOR EACH ROW EXECUTE FUNCTION keep_unarchived_ids();
CREATE TRIGGER call_ids_stay_whole BEFORE TRUNCATE ON call_ids
    FOR EACH STATEMENT EXECUTE FUNCTION keep_calls();
CREATE TRIGGER corrections_stay_as_they_are BEFORE UPDATE ON corrections
    FOR EACH ROW EXECUTE FUNCTION keep_correction_content();
CREATE TRIGGER corrections_stay BEFORE DELETE ON corrections
    FOR EACH ROW EXECUTE FUNCTION keep_unarchived_corrections();
CREATE TRIGGER corrections_stay_whole BEFORE TRUNCATE ON corrections
    FOR EACH STATEMENT EXECUTE FUNCTION keep_corrections();
CREATE FUNCTION keep_archive() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'the sums of archived calls are kept for ever'; END $$;
CREATE TRIGGER archived_calls_stay BEFORE DELETE OR TRUNCATE ON archived_calls
    FOR EACH STATEMENT EXECUTE FUNCTION keep_archive();
CREATE TRIGGER archived_ids_stay BEFORE DELETE OR TRUNCATE ON archived_ids
    FOR EACH STATEMENT EXECUTE FUNCTION keep_archive();
CREATE TRIGGER archive_parts_stay BEFORE DELETE OR TRUNCATE ON archive_parts
    FOR EACH STATEMENT EXECUTE FUNCTION keep_archive();
CREATE VIEW archive_guards AS
    SELECT CAST(tgname AS TEXT) AS name FROM pg_trigger
    WHERE tgrelid IN ('archived_calls'::regclass, 'archived_ids'::regclass, 'archive_parts'::regclass)
    AND NOT tgisinternal AND tgenabled IN ('O', 'A');
