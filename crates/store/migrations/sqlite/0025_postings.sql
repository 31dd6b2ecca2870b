-- The counts and the bill that the provider told, as JSON; empty if it told none. The reasons for which
-- the charge differs from them. How much the settlement knows: 0 a heartbeat, 1 the journal, 2 the
-- call's own process. Rows from before have none: there the outcome says it.
ALTER TABLE entries ADD COLUMN told TEXT NOT NULL DEFAULT '';
ALTER TABLE entries ADD COLUMN reasons TEXT NOT NULL DEFAULT '[]';
ALTER TABLE entries ADD COLUMN knowledge INTEGER;

-- Later settlements of a call that know more than the earlier ones: the differences, and the whole call
-- as it is now. The sum of a call's entry and its corrections is the truth; no row ever changes.
CREATE TABLE corrections (
    request_id TEXT    NOT NULL,
    number     INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    key_id     TEXT    NOT NULL,
    account_id TEXT    NOT NULL,
    knowledge  INTEGER NOT NULL,
    cost       INTEGER NOT NULL,
    borne      INTEGER NOT NULL,
    input      INTEGER NOT NULL,
    output     INTEGER NOT NULL,
    body       TEXT    NOT NULL,
    PRIMARY KEY (request_id, number)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER corrections_stay_as_they_are BEFORE UPDATE ON corrections
    BEGIN SELECT RAISE(ABORT, 'a settled call is never changed'); END;
CREATE TRIGGER corrections_stay BEFORE DELETE ON corrections
    BEGIN SELECT RAISE(ABORT, 'a settled call is never forgotten'); END;
CREATE VIEW correction_guards AS
    SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'corrections';

-- Number of renewals of a claim. A claimant that sees the same number for a while takes the claim over,
-- so that no clock of another machine decides.
ALTER TABLE idempotent ADD COLUMN renewals INTEGER NOT NULL DEFAULT 0;
