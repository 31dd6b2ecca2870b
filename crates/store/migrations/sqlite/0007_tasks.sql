-- Work that goes on without its caller. A run is claimed until `held_until`, by the database's clock;
-- `runs` counts the claims and is the fence: what an earlier claimant still has to say is not heard.
CREATE TABLE tasks (
    id          TEXT NOT NULL PRIMARY KEY,
    account_id  TEXT NOT NULL REFERENCES accounts (id),
    key_id      TEXT NOT NULL,
    path        TEXT NOT NULL,
    model       TEXT NOT NULL,
    provider    TEXT NOT NULL,
    -- What was asked: headers as JSON, and the body here or in a file, until the task is over.
    head        TEXT NOT NULL,
    body        BLOB,
    body_file   TEXT,
    status      TEXT NOT NULL,
    progress    INTEGER NOT NULL DEFAULT 0,
    request_id  TEXT,
    result      TEXT,
    error       TEXT,
    runs        INTEGER NOT NULL DEFAULT 0,
    owner       TEXT,
    held_until  INTEGER NOT NULL DEFAULT 0,
    webhook     TEXT,
    hook_state  TEXT,
    hook_tries  INTEGER NOT NULL DEFAULT 0,
    hook_at     INTEGER NOT NULL DEFAULT 0,
    hook_status INTEGER,
    created     INTEGER NOT NULL,
    ended       INTEGER,
    expires     INTEGER NOT NULL
) STRICT;
CREATE INDEX tasks_by_account ON tasks (account_id, id);
CREATE INDEX tasks_by_expiry ON tasks (expires);
CREATE INDEX tasks_open ON tasks (held_until) WHERE status IN ('pending', 'processing');
CREATE INDEX tasks_to_tell ON tasks (hook_at) WHERE hook_state = 'pending';

-- When each account was last served, in turns; under the empty name, the last turn that was given.
CREATE TABLE task_turns (
    account_id TEXT NOT NULL PRIMARY KEY,
    turn       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
