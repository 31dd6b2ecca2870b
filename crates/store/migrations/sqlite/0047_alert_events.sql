-- Alerts that programs before this migration cannot read, in a table that those do not ask: events of the gateway and
-- statements. An event of the gateway has `gateway` as its account, is about `subject` and lasts from `begun` to `ended`.
-- A statement is one of the month that begins at `begun`. `mailed` is the time of the mail about the begin of an event
-- whose end is told too. The columns of deliveries are those of `alerts`.
CREATE TABLE alert_events (
    id             TEXT NOT NULL PRIMARY KEY,
    account_id     TEXT NOT NULL,
    kind           TEXT NOT NULL,
    subject        TEXT NOT NULL,
    detail         TEXT NOT NULL,
    begun          INTEGER NOT NULL,
    ended          INTEGER,
    level          INTEGER NOT NULL,
    at             INTEGER NOT NULL,
    mail           TEXT,
    mail_tries     INTEGER NOT NULL DEFAULT 0,
    mail_at        INTEGER NOT NULL DEFAULT 0,
    mailed         INTEGER NOT NULL DEFAULT 0,
    webhook        TEXT,
    webhook_tries  INTEGER NOT NULL DEFAULT 0,
    webhook_at     INTEGER NOT NULL DEFAULT 0,
    webhook_status INTEGER
) STRICT;
CREATE UNIQUE INDEX alert_events_once ON alert_events (kind, begun, account_id, subject);
CREATE UNIQUE INDEX alert_events_open ON alert_events (kind, subject) WHERE account_id = 'gateway' AND ended IS NULL;
CREATE INDEX alert_events_by_time ON alert_events (account_id, at, id);
CREATE INDEX alert_events_of_all ON alert_events (at, id);
CREATE INDEX alert_events_with_mail ON alert_events (account_id, mail_at) WHERE mail = 'pending';
CREATE INDEX alert_events_with_webhook ON alert_events (webhook_at) WHERE webhook = 'pending';

CREATE VIEW all_alerts AS
SELECT id, account_id, key_id, bound, begun, amount, level, spent, at, mail, mail_tries, mail_at,
    CAST(0 AS BIGINT) AS mailed, webhook, webhook_tries, webhook_at, webhook_status,
    '' AS subject, '' AS detail, CAST(NULL AS BIGINT) AS ended
FROM alerts
UNION ALL
SELECT id, account_id, '', kind, begun, CAST(0 AS BIGINT), level, CAST(0 AS BIGINT), at, mail, mail_tries, mail_at,
    mailed, webhook, webhook_tries, webhook_at, webhook_status, subject, detail, ended
FROM alert_events;

-- What administrators are told of the gateway, in one row. Without it the defaults hold.
CREATE TABLE gateway_alert_settings (
    id            TEXT NOT NULL PRIMARY KEY,
    lanes         INTEGER NOT NULL,
    credentials   INTEGER NOT NULL,
    health        INTEGER NOT NULL,
    error_percent INTEGER,
    mails         INTEGER NOT NULL,
    quiet         TEXT,
    form          TEXT,
    sealed        BLOB,
    sealed_by     TEXT,
    changed       INTEGER NOT NULL
) STRICT;

-- Accounts and teams that get the statement of each month by mail.
ALTER TABLE alert_settings ADD COLUMN statements INTEGER NOT NULL DEFAULT 0;
