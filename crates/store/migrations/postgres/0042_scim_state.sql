-- The state that the provider itself gave a person. The lock of the account may be the operator's.
ALTER TABLE scim_users ADD COLUMN active BOOLEAN NOT NULL DEFAULT TRUE;

-- Id of the person in the provider's directory (`oid` of Microsoft Entra ID), which differs from the subject.
ALTER TABLE identities ADD COLUMN object_id TEXT COLLATE "C";
CREATE INDEX identities_by_object ON identities (issuer, object_id);
