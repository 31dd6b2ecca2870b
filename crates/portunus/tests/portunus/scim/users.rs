//! The life of a person.

use super::*;
use canon::Micros;

#[tokio::test]
async fn a_person_is_created_read_changed_and_deleted() {
    let provider = ScimStage::open().await;
    let body = json!({
        "schemas": ["urn:ietf:params:scim:schemas:core:2.0:User",
            "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"],
        "userName": "Anna@example.com", "externalId": "00u1", "displayName": "Anna Berg",
        "name": { "givenName": "Anna", "familyName": "Berg", "middleName": "X" },
        "emails": [{ "value": "anna@example.com", "type": "work", "primary": true }],
        "title": "Captain", "roles": [{ "value": "owner" }], "password": "secret", "active": true,
        "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User": { "department": "Sea" },
    });
    let made = provider.send(Method::POST, "/Users", body.clone()).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let mut told = made.json();
    let id = told["id"].as_str().unwrap().to_owned();
    let path = format!("/Users/{id}");
    let location = format!("{}/scim/v2{path}", provider.gateway.app.config().public_url);
    assert_eq!(made.header("location"), location);
    assert_eq!(made.header("etag"), told["meta"]["version"].as_str().unwrap());
    assert_eq!(told["meta"]["lastModified"], told["meta"]["created"]);
    for moving in ["created", "lastModified", "version"] {
        assert!(told["meta"].as_object_mut().unwrap().remove(moving).is_some(), "{moving}");
    }
    let expected = json!({
        "schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"],
        "id": id, "externalId": "00u1", "userName": "Anna@example.com", "displayName": "Anna Berg",
        "name": { "givenName": "Anna", "familyName": "Berg" },
        "emails": [{ "value": "anna@example.com", "type": "work", "primary": true }],
        "active": true, "meta": { "resourceType": "User", "location": location },
    });
    assert_eq!(told, expected);
    let account = provider.gateway.app.store.account(&id).await.unwrap().unwrap();
    assert_eq!((account.username.as_str(), account.role.word()), ("Anna", "viewer"));
    assert_eq!(account.email.as_deref(), Some("anna@example.com"));

    let twice = json!({ "userName": "ANNA@EXAMPLE.COM" });
    provider.refuses(Method::POST, "/Users", twice, 409, "uniqueness").await;
    let changed = json!({ "userName": "anna.b@example.com", "name": { "givenName": "Anna" },
        "emails": [{ "value": "anna.b@example.com" }] });
    let put = provider.send(Method::PUT, &path, changed).await;
    assert_eq!(put.status, 200, "{}", put.text());
    assert_ne!(put.header("etag"), made.header("etag"));
    let told = put.json();
    assert_eq!(told["externalId"], Value::Null, "a PUT replaces the whole");
    assert_eq!(told["active"], true);
    let account = provider.gateway.app.store.account(&id).await.unwrap().unwrap();
    assert_eq!(account.email.as_deref(), Some("anna.b@example.com"));

    let stale = provider.gateway.request(Method::PATCH, &format!("/scim/v2{path}")).without_key();
    let stale = stale.header("authorization", &format!("Bearer {}", provider.token));
    let patch = json!({ "Operations": [{ "op": "replace", "path": "displayName", "value": "A" }] });
    let stale =
        stale.header("content-type", "application/json").header("if-match", made.header("etag"));
    is_refusal(&stale.body(patch.to_string()).send().await, 412, "", "a stale change");

    let gone = provider.send(Method::DELETE, &path, Value::Null).await;
    assert_eq!((gone.status.as_u16(), gone.text().as_str()), (204, ""));
    provider.refuses(Method::GET, &path, Value::Null, 404, "").await;
    provider.refuses(Method::DELETE, &path, Value::Null, 404, "").await;
    assert_eq!(provider.get("/Users").await["totalResults"], 0);
    let account = provider.gateway.app.store.account(&id).await.unwrap().unwrap();
    assert!(account.disabled, "the account stays, locked");

    // The same person comes back to the same account.
    let again = json!({ "userName": "anna.b@example.com", "externalId": "new" });
    let back = provider.send(Method::POST, "/Users", again).await;
    assert_eq!((back.status.as_u16(), &back.json()["id"]), (201, &json!(id)));
    let account = provider.gateway.app.store.account(&id).await.unwrap().unwrap();
    assert!(!account.disabled);
    // Another person with a recycled name does not.
    provider.send(Method::DELETE, &path, Value::Null).await;
    let other = json!({ "userName": "anna.b@example.com", "externalId": "someone else" });
    let other = provider.send(Method::POST, "/Users", other).await;
    assert_eq!(other.status, 201, "{}", other.text());
    assert_ne!(other.json()["id"], json!(id));
    let old = provider.gateway.app.store.account(&id).await.unwrap().unwrap();
    assert_eq!((old.disabled, old.email), (true, None));

    let actor = |line: &store::AuditRecord| line.actor.starts_with("scim corp ");
    let lines = provider.gateway.app.store.audits(100).await.unwrap();
    let actions: Vec<&str> =
        lines.iter().rev().filter(|line| actor(line)).map(|line| line.action.as_str()).collect();
    let expected = [
        "account.create",
        "scim.create_user",
        "account.email",
        "scim.change_user",
        "account.disable",
        "scim.delete_user",
        "account.enable",
        "scim.create_user",
        "account.disable",
        "scim.delete_user",
        "account.rename",
        "account.create",
        "scim.create_user",
    ];
    assert_eq!(actions, expected);
    assert!(lines.iter().filter(|line| actor(line)).all(|line| line.address.is_some()));
}

#[tokio::test]
async fn an_inactive_person_is_signed_out_and_its_keys_stop_on_all_nodes() {
    let provider = ScimStage::open().await;
    let other_node = provider.gateway.start_second_node(CONFIG).await;
    let id = provider.person("anna").await;
    let gateway = &provider.gateway;
    let hash =
        admin::NewPassword::check("three harbour lights", &["anna"]).unwrap().hash().unwrap();
    gateway.app.store.set_password(&id, Some(hash.as_str()), Micros::new(1)).await.unwrap();
    let admin = gateway.admin_key().await.to_owned();
    let wish = json!({ "name": "k", "cap_usd": null, "account_id": id }).to_string();
    let made = gateway.request(Method::POST, "/api/admin/keys").key(&admin);
    let made = made.header("content-type", "application/json").body(wish).send().await;
    let key = made.json()["key"].as_str().unwrap().to_owned();
    let form = "login=anna%40example.com&password=three+harbour+lights";
    let signed = gateway.request(Method::POST, "/login").without_key().header("cookie", "a=b");
    let signed = signed.header("content-type", "application/x-www-form-urlencoded");
    let signed = signed.body(form).send().await;
    assert_eq!(signed.status, 303, "{}", signed.text());
    let cookie = signed.header("set-cookie").split(';').next().unwrap().to_owned();
    let page = async || {
        let page = gateway.get("/console").without_key().header("cookie", &cookie).send().await;
        page.status.as_u16()
    };
    let call =
        async |gateway: &TestGateway| gateway.get("/v1/key").key(&key).send().await.status.as_u16();
    let becomes = async |status: u16| {
        testkit::until("the other node knows", async || call(&other_node).await == status).await;
    };
    assert_eq!((page().await, call(gateway).await), (200, 200));
    becomes(200).await;
    let path = format!("/Users/{id}");
    let off = json!([{ "op": "Replace", "path": "active", "value": "False" }]);
    let got = provider.patch(&path, off.clone()).await;
    assert_eq!((got.status.as_u16(), &got.json()["active"]), (200, &json!(false)));
    assert_eq!((page().await, call(gateway).await), (303, 401), "at once on this node");
    becomes(401).await;
    let again = provider.patch(&path, off).await;
    assert_eq!(again.header("etag"), got.header("etag"), "a repeated change changes nothing");
    let on = json!([{ "op": "replace", "value": { "active": true } }]);
    assert_eq!(provider.patch(&path, on).await.json()["active"], true);
    assert_eq!((page().await, call(gateway).await), (303, 200), "keys work again, sessions do not");
    becomes(200).await;
    assert_eq!(provider.send(Method::DELETE, &path, Value::Null).await.status, 204);
    assert_eq!(call(gateway).await, 401);
    becomes(401).await;
}

#[tokio::test]
async fn people_are_listed_filtered_and_paged() {
    let provider = ScimStage::open().await;
    for name in ["anna", "bert", "carl"] {
        provider.person(name).await;
    }
    let id = provider.get("/Users?filter=userName%20eq%20%22BERT@example.com%22").await;
    let bert = id["Resources"][0]["id"].as_str().unwrap().to_owned();
    for (query, names) in [
        ("", "anna bert carl"),
        ("filter=externalId eq \"ext-carl\"", "carl"),
        ("filter=emails.value eq \"Anna@example.com\"", "anna"),
        ("filter=emails[type eq \"work\"].value eq \"anna@example.com\"", "anna"),
        ("filter=emails[type eq \"home\"].value eq \"anna@example.com\"", ""),
        ("filter=displayName eq \"x\"", ""),
        ("filter=userName eq \"bert@example.com\" and active eq true", "bert"),
        ("filter=userName eq \"bert@example.com\" and active eq false", ""),
        (&format!("filter=id eq \"{bert}\""), "bert"),
        ("startIndex=2", "bert carl"),
        ("startIndex=2&count=1", "bert"),
        ("startIndex=-5&count=1", "anna"),
        ("startIndex=9", ""),
        ("count=0", ""),
        ("count=-1", ""),
        ("filter=userName eq \"%\"", ""),
        ("filter=userName eq \"' or '1'='1\"", ""),
        ("filter=userName eq \"a\\u0000b\"", ""),
    ] {
        let list = provider.get(&format!("/Users?{}", escaped(query))).await;
        assert_eq!(list["schemas"], json!(["urn:ietf:params:scim:api:messages:2.0:ListResponse"]));
        let found = list["Resources"].as_array().unwrap();
        let found: Vec<&str> = found
            .iter()
            .map(|one| one["userName"].as_str().unwrap().split('@').next().unwrap())
            .collect();
        assert_eq!(found.join(" "), names, "{query}");
        assert_eq!(list["itemsPerPage"], found.len());
        if !query.contains("filter") {
            assert_eq!(list["totalResults"], 3, "{query}");
        }
    }
    let path = format!("/Users/{bert}");
    let few = provider.get(&format!("{path}?attributes=userName")).await;
    let schema = "urn:ietf:params:scim:schemas:core:2.0:User";
    assert_eq!(few, json!({ "id": bert, "userName": "bert@example.com", "schemas": [schema] }));
    let without = provider.get(&format!("{path}?excludedAttributes=emails,meta,groups")).await;
    assert_eq!((&without["emails"], &without["meta"]), (&Value::Null, &Value::Null));
    for (query, kind) in [
        ("filter=userName co \"a\"", "invalidFilter"),
        ("filter=userName", "invalidFilter"),
        ("filter=password eq \"x\"", "invalidFilter"),
        ("sortBy=userName", "invalidValue"),
        ("count=many", "invalidValue"),
    ] {
        let path = format!("/Users?{}", escaped(query));
        provider.refuses(Method::GET, &path, Value::Null, 400, kind).await;
    }
    let search = json!({ "schemas": ["urn:ietf:params:scim:api:messages:2.0:SearchRequest"],
        "filter": "userName eq \"anna@example.com\"", "attributes": ["userName"] });
    let found = provider.send(Method::POST, "/Users/.search", search).await;
    assert_eq!(found.json()["totalResults"], 1, "{}", found.text());
}

fn escaped(query: &str) -> String {
    let escape = |byte: u8| match byte {
        b'=' | b'&' => char::from(byte).to_string(),
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    let mut first = true;
    let mut text = String::new();
    // Only the first sign of each pair separates name and value.
    for byte in query.bytes() {
        match byte {
            b'=' if !first => text.push_str("%3D"),
            b'=' => {
                text.push('=');
                first = false;
            }
            b'&' => {
                text.push('&');
                first = true;
            }
            byte => text.push_str(&escape(byte)),
        }
    }
    text
}

#[tokio::test]
async fn the_service_describes_itself() {
    let provider = ScimStage::open().await;
    let config = provider.get("/ServiceProviderConfig").await;
    for (name, supported) in
        [("patch", true), ("bulk", false), ("filter", true), ("sort", false), ("etag", true)]
    {
        assert_eq!(config[name]["supported"], supported, "{name}");
    }
    for (path, ids) in [
        ("/ResourceTypes", ["User", "Group"]),
        (
            "/Schemas",
            [
                "urn:ietf:params:scim:schemas:core:2.0:User",
                "urn:ietf:params:scim:schemas:core:2.0:Group",
            ],
        ),
    ] {
        let list = provider.get(path).await;
        assert_eq!(list["totalResults"], 2);
        for (at, id) in ids.into_iter().enumerate() {
            let one = provider.get(&format!("{path}/{id}")).await;
            assert_eq!(one, list["Resources"][at]);
            assert_eq!(one["id"], id);
        }
        provider.refuses(Method::GET, &format!("{path}/none"), Value::Null, 404, "").await;
        provider.refuses(Method::POST, path, json!({}), 405, "").await;
    }
    provider.refuses(Method::POST, "/Bulk", json!({}), 501, "").await;
    provider.refuses(Method::GET, "/Me", Value::Null, 501, "").await;
    provider.refuses(Method::POST, "/.search", json!({}), 501, "").await;
    provider.refuses(Method::GET, "/Nothing", Value::Null, 404, "").await;
    provider.refuses(Method::DELETE, "/Users", Value::Null, 405, "").await;
    provider.refuses(Method::GET, "/", Value::Null, 404, "").await;
    provider.refuses(Method::POST, "", json!({}), 404, "").await;
    let options = provider.send(Method::OPTIONS, "/Users", Value::Null).await;
    is_refusal(&options, 405, "", "OPTIONS");
    assert!(options.header("allow").contains("PATCH"), "{}", options.header("allow"));
}
