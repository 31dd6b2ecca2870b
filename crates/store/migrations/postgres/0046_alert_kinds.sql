-- Further kinds of alerts. The word in `alerts.bound` says the kind: `forecast_day` and alike for a budget that will be passed,
-- `key_expiry` for a key that expires at `begun` in at most `level` days. Each kind can be turned off. `quiet` has begin, end
-- and time zone of the hours in which mails wait, as a JSON list.
ALTER TABLE alert_settings ADD COLUMN forecasts BIGINT NOT NULL DEFAULT 1;
ALTER TABLE alert_settings ADD COLUMN expiries BIGINT NOT NULL DEFAULT 1;
ALTER TABLE alert_settings ADD COLUMN quiet TEXT;
CREATE INDEX keys_that_expire ON keys (expires) WHERE revoked IS NULL AND surface IS NULL;
