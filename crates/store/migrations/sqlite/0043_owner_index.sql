-- Owners are few. A change of a person who may be one reads them all.
CREATE INDEX accounts_of_owners ON accounts (id) WHERE kind = 'person' AND role = 'owner';
