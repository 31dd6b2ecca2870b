-- What a call was billed by beyond tokens, in which service tier, who ended it, and what was charged
-- for which dimension. A row from before says nothing of it.
ALTER TABLE entries ADD COLUMN images BIGINT NOT NULL DEFAULT 0;
ALTER TABLE entries ADD COLUMN seconds BIGINT NOT NULL DEFAULT 0;
ALTER TABLE entries ADD COLUMN service TEXT NOT NULL DEFAULT '';
ALTER TABLE entries ADD COLUMN ended_by TEXT NOT NULL DEFAULT '';
ALTER TABLE entries ADD COLUMN charges TEXT NOT NULL DEFAULT '[]';

-- What all keys of an account together may spend; an account without a row may spend anything. No sum
-- is kept: `Σ (spent + leased) <= cap` over the account's keys is checked with this row locked.
-- `wanted` is as with keys; `changed` is when the terms were set.
CREATE TABLE account_caps (
    account_id    TEXT   NOT NULL PRIMARY KEY REFERENCES accounts (id),
    cap           BIGINT,
    budget        BIGINT,
    budget_period TEXT,
    wanted        BIGINT NOT NULL DEFAULT 0,
    changed       BIGINT NOT NULL DEFAULT 0
);
