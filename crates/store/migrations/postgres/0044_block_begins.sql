-- The earliest begin of a call of a block; blocks from before have none. The longest time between it and the
-- end tells how far behind a time the calls end that began before it.
ALTER TABLE call_blocks ADD COLUMN begun BIGINT;
CREATE INDEX call_blocks_by_length ON call_blocks ((ended - begun));
