-- Address and user agent of the request behind a line of the audit log. Both are NULL for the command
-- line and for lines from before this change.
ALTER TABLE audits ADD COLUMN address TEXT;
ALTER TABLE audits ADD COLUMN agent TEXT;
