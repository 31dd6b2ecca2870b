-- What a call was billed by beyond tokens, in which service tier, who ended it, and what was charged
-- for which dimension. A row from before says nothing of it.
ALTER TABLE entries ADD COLUMN images INTEGER NOT NULL DEFAULT 0;
ALTER TABLE entries ADD COLUMN seconds INTEGER NOT NULL DEFAULT 0;
ALTER TABLE entries ADD COLUMN service TEXT NOT NULL DEFAULT '';
ALTER TABLE entries ADD COLUMN ended_by TEXT NOT NULL DEFAULT '';
ALTER TABLE entries ADD COLUMN charges TEXT NOT NULL DEFAULT '[]';

-- What all keys of an account together may spend; an account without a row may spend anything. No sum
-- is kept: `Σ (spent + leased) <= cap` over the account's keys is checked with this row locked.
-- `wanted` is as with keys; `changed` is when the terms were set.
CREATE TABLE account_caps (
    account_id    TEXT    NOT NULL PRIMARY KEY REFERENCES accounts (id),
    cap           INTEGER,
    budget        INTEGER,
    budget_period TEXT,
    wanted        INTEGER NOT NULL DEFAULT 0,
    changed       INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
