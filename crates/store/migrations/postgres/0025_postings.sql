-- The counts and the bill that the provider told, as JSON; empty if it told none. The reasons for which
-- the charge differs from them. How much the settlement knows: 0 a heartbeat, 1 the journal, 2 the
-- call's own process. Rows from before have none: there the outcome says it.
ALTER TABLE entries ADD COLUMN told TEXT NOT NULL DEFAULT '';
ALTER TABLE entries ADD COLUMN reasons TEXT NOT NULL DEFAULT '[]';
ALTER TABLE entries ADD COLUMN knowledge BIGINT;

-- Later settlements of a call that know more than the earlier ones: the differences, and the whole call
-- as it is now. The sum of a call's entry and its corrections is the truth; no row ever changes.
CREATE TABLE corrections (
    request_id TEXT COLLATE "C" NOT NULL,
    number     BIGINT NOT NULL,
    at         BIGINT NOT NULL,
    key_id     TEXT COLLATE "C" NOT NULL,
    account_id TEXT COLLATE "C" NOT NULL,
    knowledge  BIGINT NOT NULL,
    cost       BIGINT NOT NULL,
    borne      BIGINT NOT NULL,
    input      BIGINT NOT NULL,
    output     BIGINT NOT NULL,
    body       TEXT   NOT NULL,
    PRIMARY KEY (request_id, number)
);
CREATE FUNCTION keep_corrections() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'a settled call is never changed or forgotten'; END $$;
CREATE TRIGGER corrections_stay_as_they_are BEFORE UPDATE ON corrections
    FOR EACH ROW EXECUTE FUNCTION keep_corrections();
CREATE TRIGGER corrections_stay BEFORE DELETE OR TRUNCATE ON corrections
    FOR EACH STATEMENT EXECUTE FUNCTION keep_corrections();
CREATE VIEW correction_guards AS
    SELECT CAST(tgname AS TEXT) AS name FROM pg_trigger
    WHERE tgrelid = 'corrections'::regclass AND NOT tgisinternal AND tgenabled IN ('O', 'A');

-- Number of renewals of a claim. A claimant that sees the same number for a while takes the claim over,
-- so that no clock of another machine decides.
ALTER TABLE idempotent ADD COLUMN renewals BIGINT NOT NULL DEFAULT 0;
