-- Calls that were refused before any provider was asked, counted by hour. They cost nothing and have
-- no row of their own.
CREATE TABLE refusals (
    begun      INTEGER NOT NULL,
    key_id     TEXT    NOT NULL,
    account_id TEXT    NOT NULL,
    model      TEXT    NOT NULL,
    reason     TEXT    NOT NULL,
    status     INTEGER NOT NULL,
    calls      INTEGER NOT NULL,
    PRIMARY KEY (begun, key_id, model, reason)
) STRICT, WITHOUT ROWID;

-- Every change of the limits of a key or an account, so that spending can be proven against the limits
-- that were in force. Terms from before are recorded as they are now; earlier periods of a budget are
-- not proven.
CREATE TABLE term_changes (
    id            INTEGER NOT NULL PRIMARY KEY,
    at            INTEGER NOT NULL,
    scope         TEXT    NOT NULL,
    owner         TEXT    NOT NULL,
    cap           INTEGER,
    budget        INTEGER,
    budget_period TEXT
) STRICT;
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

CREATE TRIGGER key_terms_begin AFTER INSERT ON keys
    BEGIN INSERT INTO term_changes (at, scope, owner, cap, budget, budget_period)
    VALUES ((SELECT now FROM store_clock), 'key', NEW.id, NEW.cap, NEW.budget, NEW.budget_period);
    END;
CREATE TRIGGER key_terms_change AFTER UPDATE OF cap, budget, budget_period ON keys
    WHEN OLD.cap IS NOT NEW.cap OR OLD.budget IS NOT NEW.budget
    OR OLD.budget_period IS NOT NEW.budget_period
    BEGIN INSERT INTO term_changes (at, scope, owner, cap, budget, budget_period)
    VALUES ((SELECT now FROM store_clock), 'key', NEW.id, NEW.cap, NEW.budget, NEW.budget_period);
    END;
CREATE TRIGGER account_terms_begin AFTER INSERT ON account_caps
    BEGIN INSERT INTO term_changes (at, scope, owner, cap, budget, budget_period)
    VALUES ((SELECT now FROM store_clock), 'account', NEW.account_id, NEW.cap, NEW.budget,
    NEW.budget_period); END;
CREATE TRIGGER account_terms_change AFTER UPDATE OF cap, budget, budget_period ON account_caps
    WHEN OLD.cap IS NOT NEW.cap OR OLD.budget IS NOT NEW.budget
    OR OLD.budget_period IS NOT NEW.budget_period
    BEGIN INSERT INTO term_changes (at, scope, owner, cap, budget, budget_period)
    VALUES ((SELECT now FROM store_clock), 'account', NEW.account_id, NEW.cap, NEW.budget,
    NEW.budget_period); END;
