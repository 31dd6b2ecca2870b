-- A stored answer belongs to the key that made it. Answers from before this change have no key, and
-- every key of their account sees them until they expire.
ALTER TABLE kept ADD COLUMN key_id TEXT;
-- The keys of an account see only their own objects, unless it shares them ('account').
ALTER TABLE account_caps ADD COLUMN share TEXT NOT NULL DEFAULT 'key';
-- Models that the keys of an account may use, as JSON; an empty list permits all.
ALTER TABLE account_caps ADD COLUMN models TEXT NOT NULL DEFAULT '[]';
-- Limits an administrator set on a key, as JSON: its members stay within them. NULL is none.
ALTER TABLE keys ADD COLUMN bounds TEXT;
-- The part of its scope a key is narrowed to; NULL is the whole scope.
ALTER TABLE keys ADD COLUMN grants TEXT;
