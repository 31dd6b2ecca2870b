//! The description of this service: what it supports, its kinds of resources and their attributes (RFC 7643,
//! sections 5 to 7).

use serde_json::{Value, json};

pub(crate) const USER_SCHEMA: &str = "urn:ietf:params:scim:schemas:core:2.0:User";
pub(crate) const GROUP_SCHEMA: &str = "urn:ietf:params:scim:schemas:core:2.0:Group";
/// Extension whose attributes are accepted and not kept.
pub(crate) const ENTERPRISE_SCHEMA: &str =
    "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User";
pub(crate) const LIST_SCHEMA: &str = "urn:ietf:params:scim:api:messages:2.0:ListResponse";
const CONFIG_SCHEMA: &str = "urn:ietf:params:scim:schemas:core:2.0:ServiceProviderConfig";
const TYPE_SCHEMA: &str = "urn:ietf:params:scim:schemas:core:2.0:ResourceType";
const SCHEMA_SCHEMA: &str = "urn:ietf:params:scim:schemas:core:2.0:Schema";

/// Largest number of resources on a page.
pub(crate) const MAX_PAGE: i64 = 100;

pub(crate) fn service_provider_config(base: &str) -> Value {
    json!({
        "schemas": [CONFIG_SCHEMA],
        "documentationUri": "https://www.rfc-editor.org/rfc/rfc7644",
        "patch": { "supported": true },
        "bulk": { "supported": false, "maxOperations": 0, "maxPayloadSize": 0 },
        "filter": { "supported": true, "maxResults": MAX_PAGE },
        "changePassword": { "supported": false },
        "sort": { "supported": false },
        "etag": { "supported": true },
        "authenticationSchemes": [{
            "type": "oauthbearertoken",
            "name": "Bearer token",
            "description": "A token made with `portunus scim token create`.",
            "specUri": "https://www.rfc-editor.org/rfc/rfc6750",
            "primary": true,
        }],
        "meta": {
            "resourceType": "ServiceProviderConfig",
            "location": format!("{base}/ServiceProviderConfig"),
        },
    })
}

pub(crate) fn resource_types(base: &str) -> Vec<Value> {
    let kind = |name: &str, endpoint: &str, schema: &str, description: &str| {
        json!({
            "schemas": [TYPE_SCHEMA],
            "id": name,
            "name": name,
            "endpoint": endpoint,
            "description": description,
            "schema": schema,
            "schemaExtensions": [],
            "meta": {
                "resourceType": "ResourceType",
                "location": format!("{base}/ResourceTypes/{name}"),
            },
        })
    };
    vec![
        kind("User", "/Users", USER_SCHEMA, "A person with an account."),
        kind("Group", "/Groups", GROUP_SCHEMA, "A group that can give a role and teams."),
    ]
}

/// One attribute of a schema.
fn attribute(name: &str, kind: &str, description: &str, extra: Value) -> Value {
    let mut all = json!({
        "name": name,
        "type": kind,
        "multiValued": false,
        "description": description,
        "required": false,
        "mutability": "readWrite",
        "returned": "default",
    });
    if kind == "string" || kind == "reference" {
        merge(&mut all, json!({ "caseExact": false, "uniqueness": "none" }));
    }
    merge(&mut all, extra);
    all
}

fn merge(all: &mut Value, extra: Value) {
    if let (Value::Object(all), Value::Object(extra)) = (all, extra) {
        all.extend(extra);
    }
}

pub(crate) fn schemas(base: &str) -> Vec<Value> {
    let none = || json!({});
    let read_only = || json!({ "mutability": "readOnly" });
    let fixed = || json!({ "mutability": "immutable" });
    let exact = |extra: Value| {
        let mut all = json!({ "caseExact": true });
        merge(&mut all, extra);
        all
    };
    let schema = |id: &str, name: &str, description: &str, attributes: Value| {
        json!({
            "schemas": [SCHEMA_SCHEMA],
            "id": id,
            "name": name,
            "description": description,
            "attributes": attributes,
            "meta": { "resourceType": "Schema", "location": format!("{base}/Schemas/{id}") },
        })
    };
    let user = json!([
        attribute(
            "userName",
            "string",
            "Name at the identity provider.",
            json!({ "required": true, "uniqueness": "server" })
        ),
        attribute(
            "name",
            "complex",
            "Parts of the name.",
            json!({ "subAttributes": [
            attribute("formatted", "string", "The whole name.", none()),
            attribute("familyName", "string", "Family name.", none()),
            attribute("givenName", "string", "Given name.", none()),
        ] })
        ),
        attribute("displayName", "string", "Name to display.", none()),
        attribute(
            "active",
            "boolean",
            "False locks the account and stops its keys. It is always assigned.",
            json!({ "required": true })
        ),
        attribute(
            "emails",
            "complex",
            "E-mail addresses. The primary one is that of the account.",
            json!({ "multiValued": true, "subAttributes": [
                attribute("value", "string", "The address.", json!({ "required": true })),
                attribute("type", "string", "Type of the address.",
                    json!({ "canonicalValues": ["work", "home", "other"] })),
                attribute("primary", "boolean", "True for the address to write to.", none()),
            ] })
        ),
        attribute(
            "groups",
            "complex",
            "Groups of the person.",
            json!({
            "multiValued": true, "mutability": "readOnly", "subAttributes": [
                attribute("value", "string", "Id of the group.", exact(read_only())),
                attribute("$ref", "reference", "Address of the group.",
                    exact(json!({ "mutability": "readOnly", "referenceTypes": ["Group"] }))),
                attribute("display", "string", "Name of the group.", read_only()),
                attribute("type", "string", "Kind of membership.",
                    json!({ "mutability": "readOnly", "canonicalValues": ["direct"] })),
            ] })
        ),
    ]);
    let group = json!([
        attribute(
            "displayName",
            "string",
            "Name of the group, by which the configuration names it.",
            json!({ "required": true, "uniqueness": "server" })
        ),
        attribute(
            "members",
            "complex",
            "Members of the group.",
            json!({ "multiValued": true, "subAttributes": [
                attribute("value", "string", "Id of the user.",
                    exact(json!({ "mutability": "immutable", "required": true }))),
                attribute("$ref", "reference", "Address of the user.",
                    exact(json!({ "mutability": "immutable", "referenceTypes": ["User"] }))),
                attribute("type", "string", "Kind of the member.", {
                    let mut extra = fixed();
                    merge(&mut extra, json!({ "canonicalValues": ["User"] }));
                    extra
                }),
            ] })
        ),
    ]);
    vec![
        schema(USER_SCHEMA, "User", "A person with an account.", user),
        schema(GROUP_SCHEMA, "Group", "A group that can give a role and teams.", group),
    ]
}
