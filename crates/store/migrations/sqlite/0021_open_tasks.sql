-- How many unfinished tasks a key has is counted before it gets another one.
CREATE INDEX tasks_open_by_key ON tasks (key_id) WHERE status IN ('pending', 'processing');
