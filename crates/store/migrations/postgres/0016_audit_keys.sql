-- An account can have several admin keys. A line of the audit log names the one that acted; it is
-- NULL for people, for the command line and for lines from before this change.
ALTER TABLE audits ADD COLUMN key_id TEXT;
