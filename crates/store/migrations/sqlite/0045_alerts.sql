-- Alerts about spending. `alert_settings` says who hears of the limits of an account and of its keys; without a row
-- the defaults hold. `levels` is a list of percents as JSON. `form` and `sealed` are the kind and the address of a webhook.
CREATE TABLE alert_settings (
    account_id TEXT NOT NULL PRIMARY KEY REFERENCES accounts (id) ON DELETE CASCADE,
    levels     TEXT    NOT NULL,
    mails      INTEGER NOT NULL,
    form       TEXT,
    sealed     BLOB,
    sealed_by  TEXT,
    changed    INTEGER NOT NULL
) STRICT;

-- A level of a limit that was passed. `key_id` is empty for a limit of the account. `bound` is `cap` or the period of a
-- budget that began at `begun`, which is 0 for a cap. A limit that is raised is another one. `mail` and `webhook` are the
-- states of the deliveries, NULL for none. `mail_at` and `webhook_at` are the times of the next or last attempts.
CREATE TABLE alerts (
    id             TEXT NOT NULL PRIMARY KEY,
    account_id     TEXT NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    key_id         TEXT NOT NULL,
    bound          TEXT NOT NULL,
    begun          INTEGER NOT NULL,
    amount         INTEGER NOT NULL,
    level          INTEGER NOT NULL,
    spent          INTEGER NOT NULL,
    at             INTEGER NOT NULL,
    mail           TEXT,
    mail_tries     INTEGER NOT NULL DEFAULT 0,
    mail_at        INTEGER NOT NULL DEFAULT 0,
    webhook        TEXT,
    webhook_tries  INTEGER NOT NULL DEFAULT 0,
    webhook_at     INTEGER NOT NULL DEFAULT 0,
    webhook_status INTEGER
) STRICT;
CREATE UNIQUE INDEX alerts_once ON alerts (account_id, key_id, bound, begun, amount, level);
CREATE INDEX alerts_by_time ON alerts (account_id, at, id);
CREATE INDEX alerts_of_all ON alerts (at, id);
CREATE INDEX alerts_with_mail ON alerts (account_id, mail_at) WHERE mail = 'pending';
CREATE INDEX alerts_with_webhook ON alerts (webhook_at) WHERE webhook = 'pending';
