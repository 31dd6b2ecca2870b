-- Browsers in which a person has signed in before. Guessing elsewhere does not slow them down. Only
-- the hash of the token in their cookie is kept.
CREATE TABLE known_devices (
    hash       BYTEA  NOT NULL,
    account_id TEXT COLLATE "C" NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    seen       BIGINT NOT NULL,
    PRIMARY KEY (hash, account_id)
);
CREATE INDEX known_devices_by_account ON known_devices (account_id, seen);
CREATE INDEX known_devices_by_time ON known_devices (seen);
-- Challenges for passkeys are bounded by the network that asks for them.
CREATE INDEX challenges_by_data ON links (data, created) WHERE purpose = 'challenge';
