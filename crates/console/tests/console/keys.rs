//! Creation, display, listing and revocation of keys.

use canon::Money;
use http::StatusCode;
use store::{AccountRole, KeyScope};

use crate::gateway::{ConsoleGateway, DAY, ODD, SECOND, START, entry, escape};

#[tokio::test]
async fn new_key_is_shown_once_and_cached_at_once() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Member).await;
    let cookie = gateway.sign_in("anna").await;
    let fields = [
        ("name", " website "),
        ("cap", "$2.50"),
        ("days", "30"),
        ("models", "demo-chat\r\ndemo-echo"),
    ];
    let got = gateway.post("/console/keys", &fields).cookie(&cookie).send().await;
    assert_eq!(got.status, StatusCode::OK);
    assert_eq!(got.header("cache-control"), "no-store");
    let text = got.body.split("<code id=\"key\">").nth(1).unwrap().split('<').next().unwrap();
    let id = text.strip_prefix("sk-pt-").unwrap().split('-').next().unwrap().to_owned();
    got.assert_contains("http://gw.example:8080/v1/chat/completions");
    got.assert_contains("from openai import OpenAI");
    got.assert_contains("ANTHROPIC_BASE_URL=http://gw.example:8080");
    got.assert_lacks("GEMINI_API_KEY");
    let key = gateway.store.key(&id).await.unwrap().unwrap();
    assert_eq!(key.account_id, anna.id);
    assert_eq!(key.name, "website");
    assert_eq!(key.cap, Some(Money::from_nanos(2_500_000_000)));
    assert_eq!(key.expires, Some(START + 30 * DAY));
    assert_eq!(key.models, ["demo-chat", "demo-echo"]);
    assert_eq!(gateway.host.known(&key.id).await.as_ref(), Some(&key));
    let console = gateway.get("/console").cookie(&cookie).send().await;
    console.assert_contains(&format!("sk-pt-{id}-…"));
    console.assert_contains("website");
    console.assert_lacks(text);
    assert_eq!(gateway.store.audits(1).await.unwrap()[0].action, "key.create");
}

#[tokio::test]
async fn an_unlimited_key_has_no_cap() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("anna", AccountRole::Owner).await;
    let cookie = gateway.sign_in("anna").await;
    let fields = [("name", "free"), ("cap", ""), ("unlimited", "yes")];
    let got = gateway.post("/console/keys", &fields).cookie(&cookie).send().await;
    assert_eq!(got.status, StatusCode::OK);
    assert_eq!(gateway.store.keys().await.unwrap()[0].cap, None);
}

#[tokio::test]
async fn errors_are_shown_beside_fields_and_values_are_kept() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("anna", AccountRole::Member).await;
    let cookie = gateway.sign_in("anna").await;
    let long = "n".repeat(61);
    let cases: [(&[(&str, &str)], &str); 12] = [
        (&[("cap", "1")], "name"),
        (&[("name", "  "), ("cap", "1")], "name"),
        (&[("name", &long), ("cap", "1")], "name"),
        (&[("name", "a\u{202e}b"), ("cap", "1")], "name"),
        (&[("name", "x")], "cap"),
        (&[("name", "x"), ("cap", "-1")], "cap"),
        (&[("name", "x"), ("cap", "NaN")], "cap"),
        (&[("name", "x"), ("cap", "1e18")], "cap"),
        (&[("name", "x"), ("cap", "5"), ("unlimited", "yes")], "cap"),
        (&[("name", "x"), ("cap", "5"), ("days", "0")], "days"),
        (&[("name", "x"), ("cap", "5"), ("days", "soon")], "days"),
        (&[("name", "x"), ("cap", "5"), ("models", "no-such-model")], "models"),
    ];
    for (fields, field) in cases {
        let got = gateway.post("/console/keys", fields).cookie(&cookie).send().await;
        assert_eq!(got.status, StatusCode::BAD_REQUEST, "{fields:?}");
        got.assert_contains(&format!("id=\"{field}-wrong\""));
    }
    let fields = [("name", "\"><script>x</script>"), ("cap", "lots"), ("days", "7")];
    let got = gateway.post("/console/keys", &fields).cookie(&cookie).send().await;
    got.assert_contains("value=\"&quot;&gt;&lt;script&gt;x&lt;/script&gt;\"");
    got.assert_contains("value=\"lots\"");
    got.assert_contains("value=\"7\"");
    assert!(gateway.store.keys().await.unwrap().is_empty());
    gateway.get("/console/keys").cookie(&cookie).send().await.assert_contains("No keys yet");
}

#[tokio::test]
async fn oversized_forms_are_rejected() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("anna", AccountRole::Member).await;
    let cookie = gateway.sign_in("anna").await;
    for (length, status) in [
        (5_000, StatusCode::BAD_REQUEST),
        (10_000, StatusCode::PAYLOAD_TOO_LARGE),
        (1_000_000, StatusCode::PAYLOAD_TOO_LARGE),
    ] {
        let name = "n".repeat(length);
        let fields = [("name", name.as_str()), ("cap", "1")];
        let got = gateway.post("/console/keys", &fields).cookie(&cookie).send().await;
        assert_eq!(got.status, status);
        assert!(got.body.len() < 20_000);
    }
}

#[tokio::test]
async fn unknown_key_fields_change_nothing() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Member).await;
    let bert = gateway.account("bert", AccountRole::Member).await;
    let cookie = gateway.sign_in("anna").await;
    let fields = [
        ("name", "x"),
        ("cap", "1"),
        ("account_id", bert.id.as_str()),
        ("id", "mine"),
        ("spent", "-5"),
        ("role", "owner"),
        ("allowed_models", "*"),
        ("revoked", "0"),
        ("name", "second"),
    ];
    let got = gateway.post("/console/keys", &fields).cookie(&cookie).send().await;
    assert_eq!(got.status, StatusCode::OK);
    let key = gateway.store.keys().await.unwrap().remove(0);
    assert_eq!((key.account_id, key.name.as_str()), (anna.id.clone(), "x"));
    assert_ne!(key.id, "mine");
    assert_eq!(gateway.store.account(&anna.id).await.unwrap().unwrap().role, AccountRole::Member);
}

#[tokio::test]
async fn names_are_escaped_on_every_page() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Owner).await;
    let key = gateway.key_of(&anna, "k<i>1", "<script>alert(1)</script>").await;
    gateway.store.post(&[entry(&key, "<u>r</u>", ODD, 5)]).await.unwrap();
    let cookie = gateway.sign_in("anna").await;
    let revoke = format!("/console/keys/{}/revoke", escape("k<i>1"));
    for path in ["/console", revoke.as_str()] {
        let got = gateway.get(path).cookie(&cookie).send().await;
        assert_eq!(got.status, StatusCode::OK, "{path}");
        got.assert_contains("&lt;script&gt;alert(1)");
        for bad in ["<script>alert", "<i>1", "<u>"] {
            got.assert_lacks(bad);
        }
    }
    let fields = [("name", "<script>alert(2)</script>"), ("cap", "1")];
    let got = gateway.post("/console/keys", &fields).cookie(&cookie).send().await;
    got.assert_contains("&lt;script&gt;alert(2)");
    got.assert_lacks("<script>alert");
}

#[tokio::test]
async fn revocation_asks_first_and_applies_at_once() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Member).await;
    gateway.key_of(&anna, "abc", "website").await;
    let cookie = gateway.sign_in("anna").await;
    assert!(gateway.host.known("abc").await.is_some_and(|key| key.revoked.is_none()));
    let asked = gateway.get("/console/keys/abc/revoke").cookie(&cookie).send().await;
    asked.assert_contains("Revoke this key?");
    assert_eq!(gateway.store.key("abc").await.unwrap().unwrap().revoked, None);
    for _ in 0..2 {
        let got = gateway.post("/console/keys/abc/revoke", &[]).cookie(&cookie).send().await;
        got.assert_redirect("/console/keys");
    }
    let revoked = gateway.store.key("abc").await.unwrap().unwrap();
    assert_eq!(revoked.revoked, Some(START));
    assert_eq!(gateway.host.known(&revoked.id).await, Some(revoked));
    gateway.get("/console").cookie(&cookie).send().await.assert_contains("Revoked");
    gateway
        .get("/console/keys/abc/revoke")
        .cookie(&cookie)
        .send()
        .await
        .assert_redirect("/console/keys");
}

#[tokio::test]
async fn members_see_and_change_only_their_own_keys() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Member).await;
    let bert = gateway.account("bert", AccountRole::Member).await;
    let key = gateway.key_of(&anna, "annaskey", "annas-site").await;
    gateway.key_of(&bert, "bertskey", "berts-site").await;
    gateway.store.post(&[entry(&key, "r1", "annas-model", 5)]).await.unwrap();
    let cookie = gateway.sign_in("bert").await;
    let console = gateway.get("/console").cookie(&cookie).send().await;
    console.assert_contains("berts-site");
    for hidden in ["annas", "annaskey"] {
        console.assert_lacks(hidden);
    }
    let foreign = gateway.get("/console/keys/annaskey/revoke").cookie(&cookie).send().await;
    let missing = gateway.get("/console/keys/nosuchke/revoke").cookie(&cookie).send().await;
    assert_eq!(foreign.status, StatusCode::NOT_FOUND);
    assert_eq!(foreign.body, missing.body);
    let got = gateway.post("/console/keys/annaskey/revoke", &[]).cookie(&cookie).send().await;
    assert_eq!(got.status, StatusCode::NOT_FOUND);
    assert_eq!(gateway.store.key("annaskey").await.unwrap().unwrap().revoked, None);
}

#[tokio::test]
async fn roles_limit_key_changes() {
    let gateway = ConsoleGateway::new().await;
    let owner = gateway.account("olga", AccountRole::Owner).await;
    let member = gateway.account("mia", AccountRole::Member).await;
    gateway.account("adam", AccountRole::Admin).await;
    let viewer = gateway.account("vera", AccountRole::Viewer).await;
    gateway.key_of(&owner, "olgaskey", "olgas").await;
    gateway.key_of(&member, "miaskey1", "mias").await;
    gateway.key_of(&viewer, "veraskey", "veras").await;
    let status = async |who: &str, path: &str| {
        let cookie = gateway.sign_in(who).await;
        gateway.post(path, &[("name", "x"), ("cap", "1")]).cookie(&cookie).send().await.status
    };
    assert_eq!(status("adam", "/console/keys/olgaskey/revoke").await, 403);
    assert_eq!(status("vera", "/console/keys/veraskey/revoke").await, 403);
    assert_eq!(status("vera", "/console/keys/miaskey1/revoke").await, 404);
    assert_eq!(status("vera", "/console/keys").await, 403);
    assert_eq!(status("adam", "/console/keys/miaskey1/revoke").await, 303);
    assert_eq!(status("olga", "/console/keys/veraskey/revoke").await, 303);
    let cookie = gateway.sign_in("adam").await;
    let seen = gateway.get("/console").cookie(&cookie).send().await;
    seen.assert_contains("olgas");
    seen.assert_lacks("/console/keys/olgaskey/revoke");
}

#[tokio::test]
async fn number_of_keys_per_account_is_limited() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Member).await;
    for n in 0..100 {
        gateway.key_of(&anna, &format!("k{n}"), "many").await;
    }
    let cookie = gateway.sign_in("anna").await;
    let fields = [("name", "one more"), ("cap", "1")];
    let got = gateway.post("/console/keys", &fields).cookie(&cookie).send().await;
    assert_eq!(got.status, StatusCode::BAD_REQUEST);
    got.assert_contains("Revoke one first");
    let console = gateway.get("/console").cookie(&cookie).send().await;
    console.assert_contains("All 100 keys");
    let list = gateway.get("/console/keys").cookie(&cookie).send().await;
    assert!(list.body.len() < 100_000);
    list.assert_contains("Page 1 of 4");
    let beyond = gateway.get("/console/keys?q=k&page=99").cookie(&cookie).send().await;
    beyond.assert_redirect("/console/keys?q=k&page=4");
    let last = gateway.get("/console/keys?q=k&page=4").cookie(&cookie).send().await;
    last.assert_contains("Page 4 of 4");
}

#[tokio::test]
async fn keys_are_searched_sorted_and_selected_by_state() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Member).await;
    let bert = gateway.account("bert", AccountRole::Member).await;
    for (owner, id, name) in
        [(&anna, "shopkey", "web shop"), (&anna, "agentkey", "<agent>"), (&bert, "bertkey", "web")]
    {
        gateway.key_of(owner, id, name).await;
    }
    // Of caps of 5 USD.
    for (id, cost) in [("shopkey", 4_000_000_000), ("agentkey", 5_000_000_000)] {
        let key = gateway.store.key(id).await.unwrap().unwrap();
        gateway.store.post(&[entry(&key, id, "demo-chat", cost)]).await.unwrap();
    }
    let cookie = gateway.sign_in("anna").await;
    let get = async |query: &str| {
        gateway.get(&format!("/console/keys?{query}")).cookie(&cookie).send().await
    };
    let all = get("").await;
    all.assert_contains("&lt;agent&gt;");
    all.assert_lacks("bertkey");
    let place = |page: &str, text: &str| page.find(text).unwrap();
    for (sort, first, second) in [("name", "agentkey", "shopkey"), ("state", "shopkey", "agentkey")]
    {
        let page = get(&format!("sort={sort}")).await.body;
        assert!(place(&page, first) < place(&page, second), "{sort}");
        assert!(page.contains("aria-sort="), "{sort}");
    }
    let found = get("q=SHOP").await;
    found.assert_contains("shopkey");
    found.assert_lacks("agentkey");
    for key in ["sk-pt-agentkey-%E2%80%A6", "sk-pt-agentkey-secret", "sk-pt-admin-agentkey"] {
        let got = get(&format!("sort=name&q={key}")).await;
        got.assert_redirect("/console/keys?sort=name&q=agentkey");
    }
    get("q=agentkey").await.assert_contains("&lt;agent&gt;");
    let near = get("state=near_cap&sort=spent").await;
    near.assert_contains("shopkey");
    near.assert_lacks("agentkey");
    get("state=expired").await.assert_contains("No matching keys");
    assert_eq!(get("state=unknown").await.status, StatusCode::BAD_REQUEST);
    let console = gateway.get("/console").cookie(&cookie).send().await;
    console.assert_contains("1 key has spent 80 % of its cap or more");
    console.assert_contains("1 key has spent its cap and is refused");
    console.assert_contains("/console/keys?state=near_cap");

    gateway.account("ada", AccountRole::Owner).await;
    let cookie = gateway.sign_in("ada").await;
    let of_bert = gateway.get("/console/keys?q=bert").cookie(&cookie).send().await;
    of_bert.assert_contains("bertkey");
    of_bert.assert_lacks("shopkey");
}

#[tokio::test]
async fn key_edits_are_validated() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Member).await;
    gateway.key_of(&anna, "abc", "website").await;
    let cookie = gateway.sign_in("anna").await;
    let page = gateway.get("/console/keys/abc/edit").cookie(&cookie).send().await;
    page.assert_contains("value=\"website\"");
    page.assert_contains("value=\"5\"");
    let fields = [
        ("name", "shop"),
        ("cap", "2"),
        ("expires", "2027-06-30"),
        ("models", "demo-chat"),
        ("rpm", "60"),
        ("tpm", "100000"),
        ("concurrency", "4"),
        ("budget", "1.50"),
        ("budget_period", "week"),
        ("ips", "10.0.0.0/8\n192.0.2.7"),
        ("spent", "0"),
        ("account_id", "x"),
        ("revoked", ""),
    ];
    let got = gateway.post("/console/keys/abc/edit", &fields).cookie(&cookie).send().await;
    got.assert_redirect("/console/keys");
    let key = gateway.store.key("abc").await.unwrap().unwrap();
    assert_eq!((key.name.as_str(), key.cap), ("shop", Some(Money::from_nanos(2_000_000_000))));
    assert_eq!(
        (key.limits.rpm, key.limits.tpm, key.limits.concurrency),
        (Some(60), Some(100_000), Some(4))
    );
    assert_eq!(key.ips, ["10.0.0.0/8", "192.0.2.7"]);
    assert_eq!(key.budget.unwrap().period, ledger::BudgetPeriod::Week);
    assert_eq!((key.account_id, key.hash), (anna.id.clone(), vec![7; 32]));
    assert_eq!(gateway.host.known("abc").await.unwrap().name, "shop");
    let page = gateway.get("/console/keys/abc/edit").cookie(&cookie).send().await;
    for shown in ["value=\"60\"", "value=\"1.5\"", "value=\"2027-06-30\"", "10.0.0.0/8\n192.0.2.7"]
    {
        page.assert_contains(shown);
    }
    let cases: [(&str, &str); 6] = [
        ("rpm", "0"),
        ("tpm", "many"),
        ("concurrency", "-1"),
        ("budget", "NaN"),
        ("ips", "somewhere"),
        ("expires", "2020-01-01"),
    ];
    for (field, value) in cases {
        let fields = [("name", "x"), ("cap", "1"), (field, value)];
        for path in ["/console/keys/abc/edit", "/console/keys"] {
            if path == "/console/keys" && field == "expires" {
                continue;
            }
            let got = gateway.post(path, &fields).cookie(&cookie).send().await;
            assert_eq!(got.status, StatusCode::BAD_REQUEST, "{path} {field}");
            got.assert_contains(&format!("id=\"{field}-wrong\""));
        }
    }
    assert_eq!(gateway.store.key("abc").await.unwrap().unwrap().name, "shop");
}

#[tokio::test]
async fn rotated_key_keeps_its_old_value_for_the_overlap() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Member).await;
    gateway.key_of(&anna, "abc", "website").await;
    let cookie = gateway.sign_in("anna").await;
    gateway
        .get("/console/keys/abc/rotate")
        .cookie(&cookie)
        .send()
        .await
        .assert_contains("for a day");
    assert_eq!(gateway.store.key("abc").await.unwrap().unwrap().old_hash, None);
    let post = |overlap: &'static str| {
        gateway.post("/console/keys/abc/rotate", &[("overlap", overlap)]).cookie(&cookie).send()
    };
    assert_eq!(post("for ever").await.status, StatusCode::BAD_REQUEST);
    let got = post("day").await;
    got.assert_contains("sk-pt-abc-");
    assert_eq!(got.header("cache-control"), "no-store");
    let key = gateway.store.key("abc").await.unwrap().unwrap();
    assert_ne!(key.hash, vec![7; 32]);
    assert_eq!(key.old_hash, Some(vec![7; 32]));
    assert_eq!(key.old_until, Some(START + DAY));
    assert_eq!(gateway.host.known("abc").await.unwrap().hash, key.hash);
    // The promised overlap holds, unless the person ends both values.
    let refused = post("hour").await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    refused.assert_contains("its previous value works until");
    let form = gateway.get("/console/keys/abc/rotate").cookie(&cookie).send().await;
    form.assert_contains("not at all");
    form.assert_lacks("for a day");
    assert_eq!(gateway.store.key("abc").await.unwrap().unwrap(), key);
    post("none").await.assert_contains("sk-pt-abc-");
    gateway.store.revoke_key("abc", START).await.unwrap();
    post("day").await.assert_redirect("/console/keys");
}

#[tokio::test]
async fn keys_of_other_accounts_cannot_be_edited_or_rotated() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Member).await;
    gateway.account("bert", AccountRole::Member).await;
    let before = gateway.key_of(&anna, "annaskey", "annas").await;
    let cookie = gateway.sign_in("bert").await;
    let fields = [("name", "x"), ("cap", "1"), ("overlap", "day")];
    for deed in ["edit", "rotate", "revoke"] {
        let (foreign, missing) =
            (format!("/console/keys/annaskey/{deed}"), format!("/console/keys/nosuchke/{deed}"));
        let got = gateway.post(&foreign, &fields).cookie(&cookie).send().await;
        let none = gateway.post(&missing, &fields).cookie(&cookie).send().await;
        assert_eq!((got.status, got.body), (StatusCode::NOT_FOUND, none.body));
    }
    assert_eq!(gateway.store.key("annaskey").await.unwrap(), Some(before));
}

#[tokio::test]
async fn keys_can_be_narrowed_to_reading_or_to_parts_of_administration() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("ada", AccountRole::Admin).await;
    let cookie = gateway.sign_in("ada").await;
    let make = async |fields: &[(&str, &str)]| {
        let got = gateway.post("/console/keys", fields).cookie(&cookie).send().await;
        assert_eq!(got.status, StatusCode::OK, "{}", got.body);
        got.assert_contains("/v1/key ");
    };
    make(&[("name", "reader"), ("read_only", "yes"), ("cap", "")]).await;
    make(&[("scope", "admin"), ("name", "robot"), ("part_usage", "yes"), ("part_keys", "yes")])
        .await;
    for (name, scope) in [("reader", "read"), ("robot", "admin:keys admin:usage")] {
        let keys = gateway.store.keys().await.unwrap();
        let key = keys.into_iter().find(|key| key.name == name).unwrap();
        assert_eq!(
            (key.grants.scope_text(key.scope).as_str(), key.cap),
            (scope, Some(Money::ZERO))
        );
        let edit = format!("/console/keys/{}/edit", key.id);
        let page = gateway.get(&edit).cookie(&cookie).send().await;
        page.assert_contains(&format!("scope {scope}"));
        page.assert_lacks("name=\"cap\"");
    }
}

#[tokio::test]
async fn admin_keys_need_an_administrator_with_recent_proof() {
    const NEW: &str = "/console/keys/new?scope=admin";
    const PROVE: &str = "/console/account/prove?next=%2Fconsole%2Fkeys%2Fnew%3Fscope%3Dadmin";
    let gateway = ConsoleGateway::new().await;
    for (name, role) in [("mia", AccountRole::Member), ("vic", AccountRole::Viewer)] {
        gateway.account(name, role).await;
        let cookie = gateway.sign_in(name).await;
        let fields = [("scope", "admin"), ("name", "robot")];
        let got = gateway.post("/console/keys", &fields).cookie(&cookie).send().await;
        assert_eq!(got.status, StatusCode::FORBIDDEN, "{name}");
        let got = gateway.get(NEW).cookie(&cookie).send().await;
        assert_eq!(got.status, StatusCode::FORBIDDEN, "{name}");
    }
    let ada = gateway.account("ada", AccountRole::Admin).await;
    let cookie = gateway.sign_in("ada").await;
    gateway.get("/console/keys/new").cookie(&cookie).send().await.assert_contains(NEW);
    let page = gateway.get(NEW).cookie(&cookie).send().await;
    page.assert_contains("New admin key");
    page.assert_lacks("name=\"cap\"");
    let fields = [("scope", "admin"), ("name", "robot"), ("unlimited", "yes"), ("cap", "")];
    let got = gateway.post("/console/keys", &fields).cookie(&cookie).send().await;
    assert_eq!(got.status, StatusCode::OK, "{}", got.body);
    got.assert_contains("/api/admin/keys");
    let key = gateway.store.keys().await.unwrap().remove(0);
    assert_eq!((key.scope, key.account_id.as_str()), (KeyScope::Admin, ada.id.as_str()));
    assert_eq!((key.cap, key.expires), (Some(Money::ZERO), Some(START + 30 * DAY)));
    let listed = gateway.get("/console").cookie(&cookie).send().await;
    listed.assert_contains("makes no calls");
    gateway.get("/console/playground").cookie(&cookie).send().await.assert_lacks(&key.id);

    let edit = format!("/console/keys/{}/edit", key.id);
    let fields = [("name", "robot"), ("scope", "call"), ("unlimited", "yes"), ("expires", "")];
    let got = gateway.post(&edit, &fields).cookie(&cookie).send().await;
    assert_eq!(got.status, StatusCode::BAD_REQUEST, "it must end");
    assert_eq!(gateway.store.key(&key.id).await.unwrap(), Some(key.clone()));

    gateway.host.clock.pass(601 * SECOND);
    gateway.get(NEW).cookie(&cookie).send().await.assert_redirect(PROVE);
    let fields = [("scope", "admin"), ("name", "second")];
    gateway.post("/console/keys", &fields).cookie(&cookie).send().await.assert_redirect(PROVE);
    for page in ["edit", "rotate"] {
        let path = format!("/console/keys/{}/{page}", key.id);
        let prove = format!("/console/account/prove?next=%2Fconsole%2Fkeys%2F{}%2F{page}", key.id);
        gateway.get(&path).cookie(&cookie).send().await.assert_redirect(&prove);
        let fields = [("name", "x"), ("expires", "2099-01-01"), ("overlap", "none")];
        gateway.post(&path, &fields).cookie(&cookie).send().await.assert_redirect(&prove);
    }
    assert_eq!(gateway.store.keys().await.unwrap(), [key]);
}

#[tokio::test]
async fn several_keys_are_revoked_after_a_question() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Member).await;
    let bert = gateway.account("bert", AccountRole::Member).await;
    for (owner, id) in [(&anna, "one"), (&anna, "two"), (&anna, "three"), (&bert, "berts")] {
        gateway.key_of(owner, id, &format!("{id} <key>")).await;
    }
    let cookie = gateway.sign_in("anna").await;
    let list = gateway.get("/console/keys").cookie(&cookie).send().await;
    list.assert_contains("Choose two &lt;key&gt;");
    let post = async |fields: &[(&str, &str)]| {
        gateway.post("/console/keys/revoke", fields).cookie(&cookie).send().await
    };
    let revoked = async |id: &str| gateway.store.key(id).await.unwrap().unwrap().revoked.is_some();
    post(&[]).await.assert_redirect("/console/keys");
    let question = post(&[("key", "one"), ("key", "two")]).await;
    question.assert_contains("Revoke 2 keys?");
    question.assert_contains("one &lt;key&gt;");
    assert!(!revoked("one").await, "nothing happens before it is confirmed");
    let yes = ("confirmed", "yes");
    assert_eq!(post(&[("key", "one"), ("key", "berts"), yes]).await.status, StatusCode::NOT_FOUND);
    assert!(!revoked("one").await, "one key of somebody else stops all");
    post(&[("key", "one"), ("key", "two"), yes]).await.assert_redirect("/console/keys");
    assert!(revoked("one").await && revoked("two").await);
    assert!(!revoked("three").await && !revoked("berts").await);
    let audits = gateway.store.audits(9).await.unwrap();
    assert_eq!(audits.iter().filter(|audit| audit.action == "key.revoke").count(), 2);
    post(&[("key", "one"), yes]).await.assert_redirect("/console/keys");
    let many: Vec<(&str, &str)> = (0..26).map(|_| ("key", "three")).collect();
    assert_eq!(post(&many).await.status, StatusCode::BAD_REQUEST);
}
