-- The tries of lanes that failed before the call was answered, as a list.
ALTER TABLE entries ADD COLUMN failed TEXT NOT NULL DEFAULT '[]';
