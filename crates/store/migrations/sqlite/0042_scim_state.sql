-- The state that the provider itself gave a person. The lock of the account may be the operator's.
ALTER TABLE scim_users ADD COLUMN active INTEGER NOT NULL DEFAULT 1;

-- Id of the person in the provider's directory (`oid` of Microsoft Entra ID), which differs from the subject.
ALTER TABLE identities ADD COLUMN object_id TEXT;
CREATE INDEX identities_by_object ON identities (issuer, object_id);
