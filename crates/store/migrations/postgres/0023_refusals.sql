-- Calls that were refused before any provider was asked, counted by hour. They cost nothing and have
-- no row of their own.
CREATE TABLE refusals (
    begun      BIGINT NOT NULL,
    key_id     TEXT COLLATE "C" NOT NULL,
    account_id TEXT COLLATE "C" NOT NULL,
    model      TEXT COLLATE "C" NOT NULL,
    reason     TEXT COLLATE "C" NOT NULL,
    status     BIGINT NOT NULL,
    calls      BIGINT NOT NULL,
    PRIMARY KEY (begun, key_id, model, reason)
);

-- Every change of the limits of a key or an account, so that spending can be proven against the limits
-- that were in force. Terms from before are recorded as they are now; earlier periods of a budget are
-- not proven.
CREATE TABLE term_changes (
    id            BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at            BIGINT NOT NULL,
    scope         TEXT COLLATE "C" NOT NULL,
    owner         TEXT COLLATE "C" NOT NULL,
    cap           BIGINT,
    budget        BIGINT,
    budget_period TEXT COLLATE "C"
);
INSERT INTO term_changes (at, scope, owner, cap)
    SELECT (SELECT now FROM store_clock), 'key', id, cap FROM keys ORDER BY id;
INSERT INTO term_changes (at, scope, owner, cap, budget, budget_period)
    SELECT (SELECT now FROM store_clock), 'key', id, cap, budget, budget_period
    FROM keys WHERE budget IS NOT NULL ORDER BY id;
INSERT INTO term_changes (at, scope, owner, cap)
    SELECT (SELECT now FROM store_clock), 'account', account_id, cap FROM account_caps
    ORDER BY account_id;
INSERT INTO term_changes (at, scope, owner, cap, budget, budget_period)
    SELECT (SELECT now FROM store_clock), 'account', account_id, cap, budget, budget_period
    FROM account_caps WHERE budget IS NOT NULL ORDER BY account_id;

CREATE FUNCTION note_key_terms() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO term_changes (at, scope, owner, cap, budget, budget_period)
    VALUES ((SELECT now FROM store_clock), 'key', NEW.id, NEW.cap, NEW.budget, NEW.budget_period);
    RETURN NULL; END $$;
CREATE FUNCTION note_account_terms() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO term_changes (at, scope, owner, cap, budget, budget_period)
    VALUES ((SELECT now FROM store_clock), 'account', NEW.account_id, NEW.cap, NEW.budget,
    NEW.budget_period);
    RETURN NULL; END $$;
CREATE TRIGGER key_terms_begin AFTER INSERT ON keys
    FOR EACH ROW EXECUTE FUNCTION note_key_terms();
CREATE TRIGGER key_terms_change AFTER UPDATE OF cap, budget, budget_period ON keys
    FOR EACH ROW WHEN (OLD.cap IS DISTINCT FROM NEW.cap OR OLD.budget IS DISTINCT FROM NEW.budget
    OR OLD.budget_period IS DISTINCT FROM NEW.budget_period) EXECUTE FUNCTION note_key_terms();
CREATE TRIGGER account_terms_begin AFTER INSERT ON account_caps
    FOR EACH ROW EXECUTE FUNCTION note_account_terms();
CREATE TRIGGER account_terms_change AFTER UPDATE OF cap, budget, budget_period ON account_caps
    FOR EACH ROW WHEN (OLD.cap IS DISTINCT FROM NEW.cap OR OLD.budget IS DISTINCT FROM NEW.budget
    OR OLD.budget_period IS DISTINCT FROM NEW.budget_period) EXECUTE FUNCTION note_account_terms();
