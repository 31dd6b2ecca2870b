-- A team is an account nobody signs in to: it owns keys and money like any other.
ALTER TABLE accounts ADD COLUMN kind TEXT NOT NULL DEFAULT 'person';

-- Who belongs to a team, and what they may do there.
CREATE TABLE members (
    team_id    TEXT COLLATE "C" NOT NULL REFERENCES accounts (id),
    account_id TEXT COLLATE "C" NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    role       TEXT    NOT NULL,
    since      BIGINT  NOT NULL,
    PRIMARY KEY (team_id, account_id)
);
CREATE INDEX members_by_account ON members (account_id);

-- Which account made a key. Of keys from before nobody knows.
ALTER TABLE keys ADD COLUMN made_by TEXT COLLATE "C";
CREATE INDEX keys_by_maker ON keys (made_by);
