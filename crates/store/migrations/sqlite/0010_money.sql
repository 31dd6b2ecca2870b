-- What a call was billed by beyond tokens, in which service tier, who ended it, and what was charged
-- for which dimension. A row from before says nothing of it.
ALTER TABLE entries ADD COLUMN images INTEGER NOT NULL DEFAULT 0;
ALTER TABLE entries ADD COLUMN seconds INTEGER NOT NULL DEFAULT 0;
ALTER TABLE entries ADD COLUMN service TEXT NOT NULL DEFAULT '';
ALTER TABLE entries ADD COLUMN ended_by TEXT NOT NULL DEFAULT '';
ALTER TABLE entries ADD COLUMN charges TEXT NOT NULL DEFAULT '[]';
