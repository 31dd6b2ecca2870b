-- A key either makes calls or administrates. Keys from before this change make calls; an admin key
-- always ends.
ALTER TABLE keys ADD COLUMN scope TEXT NOT NULL DEFAULT 'call'
    CHECK (scope = 'call' OR (scope = 'admin' AND expires IS NOT NULL));
