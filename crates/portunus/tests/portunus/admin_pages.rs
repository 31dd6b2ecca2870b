//! Administration in the console: pages over the real administration, with a session.

use canon::Micros;
use http::Method;
use serde_json::json;
use store::{Account, AccountRole, AuditLine};
use testkit::{TestGateway, TestResponse};

const PASSWORD: &str = "three harbour lights";

/// Somebody with a browser.
struct Person<'a> {
    gateway: &'a TestGateway,
    id: String,
    cookie: String,
}

fn escape(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

async fn post(
    gateway: &TestGateway,
    path: &str,
    cookie: &str,
    fields: &[(&str, &str)],
) -> TestResponse {
    let body: Vec<String> = fields.iter().map(|(n, v)| format!("{n}={}", escape(v))).collect();
    let ask = gateway.request(Method::POST, path).without_key().header("cookie", cookie);
    let ask = ask.header("sec-fetch-site", "same-origin");
    ask.header("content-type", "application/x-www-form-urlencoded")
        .body(body.join("&"))
        .send()
        .await
}

impl<'a> Person<'a> {
    async fn new(gateway: &'a TestGateway, name: &str, role: AccountRole) -> Self {
        let owner = gateway.app.store.accounts().await.unwrap().remove(0);
        let hash = admin::NewPassword::check(PASSWORD, &[name]).unwrap().hash().unwrap();
        let account = Account {
            id: format!("id-of-{name}"),
            username: name.to_owned(),
            password_hash: Some(hash.as_str().to_owned()),
            role,
            ..owner
        };
        gateway.app.store.add_account(&account).await.unwrap();
        let got = post(gateway, "/login", "a=b", &[("login", name), ("password", PASSWORD)]).await;
        assert_eq!(got.status, 303, "{}", got.text());
        let cookie = got.header("set-cookie").split(';').next().unwrap().to_owned();
        Self { gateway, id: account.id, cookie }
    }

    async fn sees(&self, path: &str) -> String {
        let got = self.looks(path).await;
        assert_eq!(got.status, 200, "{path}: {}", got.text());
        got.text()
    }

    async fn looks(&self, path: &str) -> TestResponse {
        self.gateway.get(path).without_key().header("cookie", &self.cookie).send().await
    }

    async fn sends(&self, path: &str, fields: &[(&str, &str)]) -> TestResponse {
        post(self.gateway, path, &self.cookie, fields).await
    }
}

/// The tag in the form that is sent to that address.
fn tag(page: &str, action: &str) -> String {
    let form = page.split("<form").find(|form| form.contains(&format!("action=\"{action}\"")));
    let tag = form.unwrap().split("name=\"tag\" value=\"").nth(1).unwrap();
    tag.split("\">").next().unwrap().replace("&quot;", "\"")
}

#[tokio::test]
async fn administration_is_for_administrators_in_the_console_too() {
    let gateway = TestGateway::start().await;
    let adam = Person::new(&gateway, "adam", AccountRole::Admin).await;
    let mia = Person::new(&gateway, "mia", AccountRole::Member).await;
    let pages = ["/console/settings", "/console/audit", "/console/audit.csv", "/console/system"];
    for path in pages {
        assert_eq!(adam.looks(path).await.status, 200, "{path}");
        let got = mia.looks(path).await;
        assert_eq!(got.status, 403, "{path}: {}", got.text());
        let nobody = gateway.get(path).without_key().send().await;
        assert_eq!(nobody.status, 303, "{path}");
        // A key is not a session.
        assert_eq!(gateway.get(path).send().await.status, 303, "{path}");
    }
    assert!(!mia.sees("/console").await.contains("/console/settings"));
    let got = mia.sends("/console/settings", &[("signup", "open")]).await;
    assert_eq!(got.status, 403, "{}", got.text());
    assert_eq!(gateway.app.store.setting("signup").await.unwrap(), None);
}

#[tokio::test]
async fn settings_are_changed_once_and_a_late_change_is_told() {
    let gateway = TestGateway::start().await;
    let adam = Person::new(&gateway, "adam", AccountRole::Admin).await;
    let page = adam.sees("/console/settings").await;
    let tag = tag(&page, "/console/settings");
    let wish = |cap: &'static str| {
        let tag = tag.clone();
        let adam = &adam;
        async move {
            let fields = [
                ("tag", tag.as_str()),
                ("signup", "open"),
                ("signup_role", "viewer"),
                ("signup_cap_usd", cap),
                ("name", "Harbour & Sons"),
            ];
            adam.sends("/console/settings", &fields).await
        }
    };
    let wrong = wish("a lot").await;
    assert_eq!(wrong.status, 400);
    assert!(wrong.text().contains("id=\"signup_cap_usd-wrong\""), "{}", wrong.text());
    assert!(wrong.text().contains("value=\"a lot\""), "what was entered stays");
    assert_eq!(wish("5").await.status, 303);
    let late = wish("6").await;
    assert_eq!(late.status, 412);
    assert!(late.text().contains("Somebody changed this meanwhile"), "{}", late.text());
    let told = gateway.get("/api/admin/settings").send().await.json();
    let expected = json!({
        "signup": "open", "signup_role": "viewer", "signup_cap_usd": "5.000000000",
        "second_factor_roles": null,
        "name": "Harbour & Sons",
    });
    assert_eq!(told, expected);
    let audit = adam.sees("/console/audit?action=setting").await;
    assert!(audit.contains("setting.change") && audit.contains(">adam</bdi>"), "{audit}");
    let page = gateway.get("/login").without_key().send().await.text();
    assert!(page.contains("Harbour &amp; Sons"), "{page}");
}

#[tokio::test]
async fn the_audit_log_is_filtered_paged_and_exported() {
    let gateway = TestGateway::start().await;
    let store = &gateway.app.store;
    let adam = Person::new(&gateway, "adam", AccountRole::Admin).await;
    for n in 0..120 {
        store
            .add_audit(&AuditLine {
                at: Micros::from_hours(n),
                actor: &adam.id,
                key_id: (n == 119).then_some("abc"),
                action: "test.done",
                subject: &format!("thing {n}"),
                detail: "=1+1",
                address: (n == 119).then_some("192.0.2.1"),
                agent: (n == 119).then_some("curl/8"),
            })
            .await
            .unwrap();
    }
    let first = adam.sees("/console/audit?action=test&actor=id-of-adam").await;
    assert!(first.contains("thing 119") && !first.contains("thing 69<"), "{first}");
    assert_eq!(first.matches(" with key <code>abc</code>").count(), 1, "{first}");
    let next = first.split("rel=\"next\" href=\"").nth(1).unwrap().split('"').next().unwrap();
    let second = adam.sees(&next.replace("&amp;", "&")).await;
    assert!(second.contains("thing 69<") && !second.contains("thing 119"), "{second}");
    let day = adam.sees("/console/audit?from=1970-01-02&to=1970-01-02").await;
    for (n, shown) in [(23, false), (24, true), (47, true), (48, false)] {
        assert_eq!(day.contains(&format!("thing {n}<")), shown, "{n}");
    }
    assert!(adam.sees("/console/audit?actor=nobody").await.contains("Nothing was changed"));
    assert_eq!(adam.looks("/console/audit?from=yesterday").await.status, 400);
    let csv = adam.sees("/console/audit.csv?action=test.done").await;
    assert_eq!(csv.lines().count(), 121);
    let line = "1970-01-05T23:00:00Z,adam,id-of-adam,test.done,thing 119,thing 119,\"'=1+1\",abc,\
                192.0.2.1,curl/8";
    assert_eq!(csv.lines().nth(1).unwrap(), line);
    let wrong = gateway.get("/api/admin/audit?before=x").send().await;
    assert_eq!((wrong.status.as_u16(), wrong.json()["field"].as_str()), (400, Some("before")));
}

#[tokio::test]
async fn the_system_is_told_to_people_and_to_programs() {
    let gateway = TestGateway::start().await;
    let adam = Person::new(&gateway, "adam", AccountRole::Admin).await;
    let page = adam.sees("/console/system").await;
    for part in ["SQLite", "answers", "this one", "not configured", env!("CARGO_PKG_VERSION")] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let told = gateway.get("/api/admin/health").send().await.json();
    assert_eq!((&told["ready"], &told["store"]), (&json!(true), &json!(true)));
    assert_eq!(told["database"]["kind"], "SQLite");
    assert_eq!(told["nodes"][0]["id"], told["node"]);
    assert_eq!(told["valkey"], json!(null));
    assert!(told["connections"].as_u64().unwrap() >= 1);
    for (whole, part) in [("journal", "bytes"), ("journal", "unposted"), ("lanes", "good")] {
        assert!(told[whole][part].is_u64(), "{whole}.{part}: {told}");
    }
}

#[tokio::test]
async fn an_account_is_changed_capped_locked_and_let_in_from_its_page() {
    let gateway = TestGateway::start().await;
    let store = &gateway.app.store;
    let olga = Person::new(&gateway, "olga", AccountRole::Owner).await;
    let mia = Person::new(&gateway, "mia", AccountRole::Member).await;
    assert!(olga.sees("/console/people").await.contains("/console/people/id-of-mia"));
    let at = "/console/people/id-of-mia";
    let page = olga.sees(at).await;
    let tag_of = |behind: &str| tag(&page, &format!("{at}{behind}"));

    let fields = [("tag", &*tag_of("/role")), ("role", "viewer")];
    assert_eq!(olga.sends(&format!("{at}/role"), &fields).await.status, 303);
    assert_eq!(store.account(&mia.id).await.unwrap().unwrap().role, AccountRole::Viewer);
    let late = olga.sends(&format!("{at}/role"), &fields).await;
    assert_eq!(late.status, 412);
    assert!(late.text().contains("Somebody changed this meanwhile"));

    let terms = |cap: &'static str, rpm: &'static str| {
        let tag = tag_of("/terms");
        let olga = &olga;
        async move {
            let fields = [
                ("tag", &*tag),
                ("cap_usd", cap),
                ("budget.most_usd", "2"),
                ("budget.per", "week"),
                ("limits.rpm", rpm),
                ("limits.tpm", ""),
                ("limits.concurrency", ""),
            ];
            olga.sends(&format!("{at}/terms"), &fields).await
        }
    };
    for (cap, rpm, field) in
        [("-1", "9", "cap_usd"), ("5", "0", "limits.rpm"), ("5", "x", "limits.rpm")]
    {
        let got = terms(cap, rpm).await;
        assert_eq!(got.status, 400, "{field}");
        assert!(got.text().contains(&format!("id=\"{field}-wrong\"")), "{}", got.text());
    }
    assert_eq!(terms("7.50", "60").await.status, 303);
    let told = gateway.get("/api/admin/users/id-of-mia/terms").send().await.json();
    assert_eq!((&told["cap_usd"], &told["limits"]["rpm"]), (&json!("7.500000000"), &json!(60)));
    assert_eq!(told["budget"], json!({ "most_usd": "2.000000000", "per": "week" }));
    assert!(olga.sees(at).await.contains("value=\"7.50\""));

    let link = olga.sends(&format!("{at}/reset"), &[]).await;
    assert!(link.text().contains("/link/"), "{}", link.text());
    assert_eq!(mia.looks("/console").await.status, 200);
    assert_eq!(olga.sends(&format!("{at}/sign-out"), &[]).await.status, 303);
    assert_eq!(mia.looks("/console").await.status, 303, "her session is over");
    for (word, locked) in [("true", true), ("false", false)] {
        assert_eq!(olga.sends(&format!("{at}/lock"), &[("disabled", word)]).await.status, 303);
        assert_eq!(store.account(&mia.id).await.unwrap().unwrap().disabled, locked);
    }
    let actions = olga.sees("/console/audit?actor=id-of-olga").await;
    for action in [
        "account.role",
        "account.terms",
        "account.limits",
        "account.reset_link",
        "session.end_all",
        "account.disable",
        "account.enable",
    ] {
        assert!(actions.contains(action), "{action}");
    }

    let adam = Person::new(&gateway, "adam", AccountRole::Admin).await;
    let above = adam.sends("/console/people/id-of-olga/lock", &[("disabled", "true")]).await;
    assert_eq!(above.status, 403, "nobody reaches above themselves");
    assert_eq!(adam.looks("/console/people/nobody").await.status, 404);
}

#[tokio::test]
async fn providers_and_models_are_made_changed_and_removed_in_the_console() {
    let gateway = TestGateway::start().await;
    let olga = Person::new(&gateway, "olga", AccountRole::Owner).await;
    assert!(olga.sees("/console/providers").await.contains("built in"));
    assert!(olga.sees("/console/providers/new").await.contains("<option value=\"openai\">"));
    let page = olga.sees("/console/providers/new?like=openai").await;
    assert!(page.contains("name=\"like\" value=\"openai\""), "{page}");
    let fields = [("like", "openai"), ("id", "openai"), ("value", "sk-not-shown-again")];
    let got = olga.sends("/console/providers", &fields).await;
    assert_eq!(got.status, 303, "{}", got.text());
    let at = "/console/providers/openai";
    let page = olga.sees(at).await;
    assert!(page.contains("in the console") && page.contains("default"), "{page}");
    assert!(!page.contains("sk-not-shown-again"));
    let fields = [("tag", &*tag(&page, at)), ("max_in_flight", "7"), ("timeouts.gap", "soon")];
    let got = olga.sends(at, &fields).await;
    assert_eq!(got.status, 400, "{}", got.text());
    assert!(got.text().contains("id=\"timeouts.gap-wrong\""), "{}", got.text());
    let fields = [("tag", &*tag(&page, at)), ("max_in_flight", "7"), ("timeouts.gap", "9s")];
    let got = olga.sends(at, &fields).await;
    assert_eq!(got.status, 303, "{}", got.text());
    let late = olga.sends(at, &fields).await;
    assert_eq!(late.status, 412);
    assert!(late.text().contains("Somebody changed this meanwhile"));
    let got =
        olga.sends(&format!("{at}/credentials"), &[("name", "second"), ("value", "sk-2")]).await;
    assert_eq!(got.status, 303, "{}", got.text());
    let page = olga.sees(at).await;
    let remove = page
        .split("action=\"")
        .find(|p| p.contains("/credentials/") && p.contains("/remove"))
        .unwrap();
    let remove = remove.split('"').next().unwrap();
    assert_eq!(olga.sends(remove, &[]).await.status, 303);

    let new = [
        ("id", "house/x:1"),
        ("lanes", "openai/gpt-x 3\ndemo/demo-chat"),
        ("price.input", "1.5"),
        ("price.output", "x"),
    ];
    let got = olga.sends("/console/models", &new).await;
    assert_eq!(got.status, 400);
    assert!(got.text().contains("id=\"price.output-wrong\""), "{}", got.text());
    let new = [("id", "house/x:1"), ("lanes", "nobody/gpt-x"), ("price.input", "1.5")];
    let got = olga.sends("/console/models", &new).await;
    assert!(got.text().contains("id=\"lanes-wrong\""), "{}", got.text());
    let new = [
        ("id", "house/x:1"),
        ("lanes", "openai/gpt-x 3\ndemo/demo-chat"),
        ("price.input", "1.5"),
        ("price.output", "2"),
    ];
    let got = olga.sends("/console/models", &new).await;
    assert_eq!(got.status, 303, "{}", got.text());
    let page = olga.sees("/console/models/edit?id=house%2Fx%3A1").await;
    assert!(page.contains("openai/gpt-x 3\ndemo/demo-chat"), "{page}");
    let got = olga
        .sends(
            "/console/models/remove",
            &[("id", "house/x:1"), ("tag", &*tag(&page, "/console/models/remove"))],
        )
        .await;
    assert_eq!(got.status, 303, "{}", got.text());
    let page = olga.sees(at).await;
    let got = olga
        .sends(&format!("{at}/remove"), &[("tag", &*tag(&page, &format!("{at}/remove")))])
        .await;
    assert_eq!(got.status, 303, "{}", got.text());
    let page = olga.sees("/console/settings").await;
    assert!(page.contains("Vault"), "{page}");
    let system = olga.sees("/console/system").await;
    assert!(system.contains(">open<"), "{system}");
    let got = olga.sends("/console/settings/rekey", &[]).await;
    assert_eq!(got.status, 303, "{}", got.text());
}
