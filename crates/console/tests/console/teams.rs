//! Team pages: acting for a team, members, and their keys.

use http::StatusCode;
use ledger::{BudgetPeriod, BudgetTerms};
use store::{Account, AccountRole, AccountTerms, KeyRecord, MemberChange, Team, TeamRole};

use crate::gateway::{ConsoleGateway, PASSWORD, START, entry, key};

async fn team(gateway: &ConsoleGateway, name: &str, seats: &[(&Account, TeamRole)]) -> Team {
    let team = Team {
        id: uuid::Uuid::now_v7().to_string(),
        name: name.to_owned(),
        disabled: false,
        created: START,
        changed: START,
    };
    gateway.store.add_team(&team).await.unwrap();
    for (who, role) in seats {
        let set = gateway.store.set_member(&team.id, &who.id, Some(*role), false, START);
        assert_eq!(set.await.unwrap(), MemberChange::Done);
    }
    team
}

async fn key_by(gateway: &ConsoleGateway, team: &Team, maker: &Account, id: &str) -> KeyRecord {
    let mut record = key(id, &team.id, &format!("{id} key"), None, Vec::new(), None);
    record.created_by = Some(maker.id.clone());
    gateway.store.add_key(&record).await.unwrap();
    record
}

fn at(team: &Team) -> String {
    format!("/console/teams/{}", team.id)
}

#[tokio::test]
async fn pages_show_the_chosen_team() {
    let gateway = ConsoleGateway::new().await;
    let mia = gateway.account("mia", AccountRole::Member).await;
    let rob = gateway.account("rob", AccountRole::Member).await;
    let night =
        team(&gateway, "Night shift", &[(&mia, TeamRole::Member), (&rob, TeamRole::Manager)]).await;
    let own = gateway.key_of(&mia, "abc", "private key").await;
    let shared = key_by(&gateway, &night, &rob, "shared").await;
    let mine = key_by(&gateway, &night, &mia, "mine").await;
    let calls = [
        entry(&own, "req_own", "model-own", 1_000_000),
        entry(&shared, "req_team", "model-team", 2_000_000),
    ];
    gateway.store.post(&calls).await.unwrap();
    let cookie = gateway.sign_in("mia").await;
    for (path, own_says, team_says) in [
        ("/console", "private key", "shared key"),
        ("/console/keys", "private key", "shared key"),
        ("/console/activity", "model-own", "model-team"),
        ("/console/activity.csv", "req_own", "req_team"),
        ("/console/playground", "private key", "mine key"),
    ] {
        let page = gateway.get(path).cookie(&cookie).send().await;
        page.assert_contains(own_says);
        page.assert_lacks(team_says);
        let page = gateway.get(&format!("{path}?for={}", night.id)).cookie(&cookie).send().await;
        page.assert_contains(team_says);
        page.assert_lacks(own_says);
    }
    let page = gateway.get(&format!("/console?for={}", night.id)).cookie(&cookie).send().await;
    page.assert_contains("made by <bdi>rob</bdi>");
    page.assert_contains(&format!("/console/activity?for={}", night.id));
    page.assert_contains(&format!("/console/statements?for={}", night.id));
    page.assert_contains(&format!("/console/keys/new?for={}", night.id));
    let play = format!("/console/playground?for={}", night.id);
    gateway.get(&play).cookie(&cookie).send().await.assert_lacks("shared key");
    for wrong in ["/console?for=none", &format!("/console?for={}", rob.id)] {
        let got = gateway.get(wrong).cookie(&cookie).send().await;
        assert_eq!(got.status, StatusCode::NOT_FOUND, "{wrong}");
    }
    let twice = format!("/console?for={0}&for={0}", night.id);
    let got = gateway.get(&twice).cookie(&cookie).send().await;
    assert_eq!(got.status, StatusCode::BAD_REQUEST);
    gateway.account("sam", AccountRole::Member).await;
    let stranger = gateway.sign_in("sam").await;
    gateway.get("/console").cookie(&stranger).send().await.assert_lacks("Acting for");
    gateway.get("/console/teams").cookie(&stranger).send().await.assert_lacks("Night shift");
    // Editing a key leads back to its team.
    let path = format!("/console/keys/{}/edit", mine.id);
    let fields = [("name", "renamed"), ("unlimited", "yes")];
    let got = gateway.post(&path, &fields).cookie(&cookie).send().await;
    got.assert_redirect(&format!("/console/keys?for={}", night.id));
}

#[tokio::test]
async fn members_are_added_by_full_name_without_enumeration() {
    let gateway = ConsoleGateway::with_mail().await;
    let max = gateway.account("max", AccountRole::Member).await;
    let mia = gateway.account("mia", AccountRole::Member).await;
    let lea = gateway.account("lea", AccountRole::Member).await;
    gateway.store.set_disabled(&lea.id, true, START).await.unwrap();
    let crew = team(&gateway, "Crew", &[(&max, TeamRole::Manager)]).await;
    team(&gateway, "Other crew", &[]).await;
    let cookie = gateway.sign_in("max").await;
    let path = format!("{}/members", at(&crew));
    let add = |login: &str| {
        gateway.post(&path, &[("login", login), ("role", "member")]).cookie(&cookie).send()
    };
    add("MIA@example.com").await.assert_redirect(&at(&crew));
    assert!(gateway.host.mail().await.text.contains("Crew"), "they hear of it");
    let page = gateway.get(&at(&crew)).cookie(&cookie).send().await;
    page.assert_contains("mia");
    page.assert_lacks("mia@example.com");
    let unknown = add("nobody").await;
    assert_eq!(unknown.status, StatusCode::BAD_REQUEST);
    unknown.assert_contains("There is nobody with this username or address.");
    for login in ["lea", "lea@example.com", "Other crew", "mi", ""] {
        let got = add(login).await;
        assert_eq!(got.status, unknown.status, "{login}");
        let same = got.body.replace(&format!("value=\"{login}\""), "value=\"nobody\"");
        assert_eq!(same, unknown.body, "{login}");
    }
    assert_eq!(add("mia").await.status, StatusCode::BAD_REQUEST, "once is enough");
    let mut tries = 0;
    while add("nobody").await.status == StatusCode::BAD_REQUEST {
        tries += 1;
        assert!(tries < 30, "names cannot be tried without end");
    }
    assert_eq!(add("mia").await.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(gateway.store.memberships_of(&mia.id).await.unwrap().len(), 1);
}

#[tokio::test]
async fn removed_members_keys_stay_or_are_revoked() {
    let gateway = ConsoleGateway::new().await;
    let max = gateway.account("max", AccountRole::Member).await;
    let mia = &gateway.account("mia", AccountRole::Member).await;
    let rob = &gateway.account("rob", AccountRole::Member).await;
    let crew = team(
        &gateway,
        "Crew",
        &[(&max, TeamRole::Manager), (mia, TeamRole::Member), (rob, TeamRole::Member)],
    )
    .await;
    let (of_mia, of_rob) =
        (key_by(&gateway, &crew, mia, "mias").await, key_by(&gateway, &crew, rob, "robs").await);
    let cookies = [gateway.sign_in("mia").await, gateway.sign_in("max").await];
    let [as_mia, as_max] = &cookies;
    let remove = |who: &Account| format!("{}/members/{}/remove", at(&crew), who.id);
    let page = gateway.get(&remove(mia)).cookie(as_max).send().await;
    page.assert_contains("mias key");
    page.assert_lacks("robs key");
    gateway
        .post(&remove(mia), &[("revoke", "yes")])
        .cookie(as_max)
        .send()
        .await
        .assert_redirect(&at(&crew));
    gateway.post(&remove(rob), &[]).cookie(as_max).send().await.assert_redirect(&at(&crew));
    let revoked = |key: &KeyRecord| {
        let (store, id) = (gateway.store.clone(), key.id.clone());
        async move { store.key(&id).await.unwrap().unwrap().revoked.is_some() }
    };
    assert!(revoked(&of_mia).await && !revoked(&of_rob).await);
    let told = gateway.host.known(&of_mia.id).await.is_some_and(|key| key.revoked.is_some());
    assert!(told, "calls learn of it at once");
    // The session continues without the team.
    for path in [at(&crew), format!("/console?for={}", crew.id)] {
        let got = gateway.get(&path).cookie(as_mia).send().await;
        assert_eq!(got.status, StatusCode::NOT_FOUND, "{path}");
    }
    let actions: Vec<String> =
        gateway.store.audits(9).await.unwrap().into_iter().map(|audit| audit.action).collect();
    assert_eq!(actions[..3], ["team.remove_member", "team.remove_member", "key.revoke"]);
}

#[tokio::test]
async fn only_administrators_remove_the_last_manager() {
    let gateway = ConsoleGateway::new().await;
    let max = gateway.account("max", AccountRole::Member).await;
    gateway.account("ada", AccountRole::Admin).await;
    let crew = team(&gateway, "Crew", &[(&max, TeamRole::Manager)]).await;
    let person = format!("{}/members/{}", at(&crew), max.id);
    let cookie = gateway.sign_in("max").await;
    for (path, fields) in
        [(format!("{person}/remove"), vec![]), (person.clone(), vec![("role", "viewer")])]
    {
        let got = gateway.post(&path, &fields).cookie(&cookie).send().await;
        assert_eq!(got.status, StatusCode::BAD_REQUEST, "{path}");
        got.assert_contains("no manager");
    }
    let cookie = gateway.sign_in("ada").await;
    let got = gateway.post(&format!("{person}/remove"), &[]).cookie(&cookie).send().await;
    got.assert_redirect(&at(&crew));
    gateway
        .get(&at(&crew))
        .cookie(&cookie)
        .send()
        .await
        .assert_contains("Administrators manage it");
}

#[tokio::test]
async fn a_team_has_a_cap_a_budget_and_limits_and_can_be_closed() {
    let gateway = ConsoleGateway::new().await;
    let olga = gateway.account("olga", AccountRole::Owner).await;
    let cookie = gateway.sign_in("olga").await;
    for (fields, wrong) in [
        (vec![("name", "x")], "Between 2 and 60"),
        (vec![("name", "olga")], "taken"),
        (vec![("name", "Crew"), ("cap", "-1")], "At least 0.01"),
        (vec![("name", "Crew"), ("budget", "5"), ("budget_period", "year")], "Choose a day"),
        (vec![("name", "Crew"), ("rpm", "0")], "above zero"),
    ] {
        let got = gateway.post("/console/teams", &fields).cookie(&cookie).send().await;
        assert_eq!(got.status, StatusCode::BAD_REQUEST, "{fields:?}");
        got.assert_contains(wrong);
    }
    assert_eq!(gateway.store.teams().await.unwrap(), []);
    let fields = [
        ("name", "<b>Crew</b>"),
        ("cap", "2.5"),
        ("budget", "1"),
        ("budget_period", "week"),
        ("rpm", "60"),
    ];
    let got = gateway.post("/console/teams", &fields).cookie(&cookie).send().await;
    assert_eq!(got.status, StatusCode::SEE_OTHER);
    let crew = gateway.store.teams().await.unwrap().remove(0).team;
    let page = gateway.get(&at(&crew)).cookie(&cookie).send().await;
    page.assert_lacks("<b>");
    for says in ["2.5", "Spent this week", "value=\"60\""] {
        page.assert_contains(says);
    }
    let shared = key_by(&gateway, &crew, &olga, "shared").await;
    gateway.post(&format!("{}/close", at(&crew)), &[]).cookie(&cookie).send().await;
    let told = gateway.host.known(&shared.id).await.unwrap();
    assert_eq!((told.id, told.revoked.is_some()), (shared.id.clone(), true));
    let path = format!("/console/keys?for={}", crew.id);
    let fields = [("name", "late"), ("unlimited", "yes")];
    let got = gateway.post(&path, &fields).cookie(&cookie).send().await;
    assert_eq!(got.status, StatusCode::FORBIDDEN, "a closed team has no use for keys");
    gateway.post(&format!("{}/open", at(&crew)), &[]).cookie(&cookie).send().await;
    let stored = gateway.store.key(&shared.id).await.unwrap().unwrap();
    assert_eq!(stored.revoked, None);
}

#[tokio::test]
async fn teams_cannot_sign_in() {
    let gateway = ConsoleGateway::with_mail().await;
    team(&gateway, "crew", &[]).await;
    let unknown = gateway.post("/login", &[("login", "nobody"), ("password", "x")]).send().await;
    let got = gateway.post("/login", &[("login", "crew"), ("password", "x")]).send().await;
    assert_eq!(got.status, unknown.status);
    assert_eq!(got.body.replace("crew", "nobody"), unknown.body);
    gateway.post("/reset", &[("login", "crew")]).send().await;
    assert!(gateway.host.no_mail().await);
}

#[tokio::test]
async fn unknown_address_is_invited_to_the_team() {
    let gateway = ConsoleGateway::with_mail().await;
    let max = gateway.account("max", AccountRole::Member).await;
    let ada = gateway.account("ada", AccountRole::Admin).await;
    let crew = team(&gateway, "Crew", &[(&max, TeamRole::Manager)]).await;
    let path = format!("{}/members", at(&crew));
    let fields = [("login", "zoe@example.com"), ("role", "viewer")];
    let cookie = gateway.sign_in("max").await;
    let got = gateway.post(&path, &fields).cookie(&cookie).send().await;
    assert_eq!(got.status, StatusCode::BAD_REQUEST, "a manager invites nobody to the gateway");
    assert!(gateway.host.no_mail().await);
    let cookie = gateway.sign_in("ada").await;
    let got = gateway.post(&path, &fields).cookie(&cookie).send().await;
    got.assert_contains("The invitation");
    let (link, to) = gateway.host.link().await;
    assert_eq!(to, "zoe@example.com");
    let word = gateway.open(&link, "/signup/new").await;
    let fields = [("username", "zoe"), ("password", PASSWORD), ("again", PASSWORD)];
    let got = gateway.post("/signup/new", &fields).cookie(&word).send().await;
    got.assert_redirect("/console");
    let zoe = gateway.store.account_by_login("zoe").await.unwrap().unwrap();
    assert_eq!(zoe.role, AccountRole::Member);
    let seats = gateway.store.memberships_of(&zoe.id).await.unwrap();
    assert_eq!(seats, [store::Membership { team: crew.clone(), role: TeamRole::Viewer }]);
    let audits = gateway.store.audits(9).await.unwrap();
    let note = audits.iter().find(|audit| audit.action == "team.member").unwrap();
    assert_eq!((&note.actor, &note.subject), (&ada.id, &crew.id));
}

#[tokio::test]
async fn a_manager_cannot_raise_what_an_administrator_set_on_a_key() {
    let gateway = ConsoleGateway::new().await;
    let mia = gateway.account("mia", AccountRole::Member).await;
    gateway.account("ada", AccountRole::Admin).await;
    let crew = team(&gateway, "Crew", &[(&mia, TeamRole::Manager)]).await;
    let record = key_by(&gateway, &crew, &mia, "bound").await;
    let path = format!("/console/keys/{}/edit", record.id);
    let (boss, member) = (gateway.sign_in("ada").await, gateway.sign_in("mia").await);
    let set = async |cookie: &str, cap: &str, models: &str| {
        let fields = [("name", "bound"), ("cap", cap), ("models", models)];
        let got = gateway.post(&path, &fields).cookie(cookie).send().await;
        let stored = gateway.store.key(&record.id).await.unwrap().unwrap();
        (got, stored.cap.map(|cap| cap.to_string()), stored.models)
    };
    let demo = vec!["demo-chat".to_owned()];
    let (got, ..) = set(&boss, "5", "demo-chat").await;
    assert_eq!(got.status, StatusCode::SEE_OTHER);
    for (cap, models) in [("6", "demo-chat"), ("5", "")] {
        let (got, stored, listed) = set(&member, cap, models).await;
        assert_eq!(got.status, StatusCode::BAD_REQUEST);
        got.assert_contains("you may lower it, not raise it");
        assert_eq!((stored.as_deref(), &listed), (Some("5.000000000"), &demo));
    }
    let (got, stored, _) = set(&member, "4", "demo-chat").await;
    assert_eq!((got.status, stored.as_deref()), (StatusCode::SEE_OTHER, Some("4.000000000")));
    let page = gateway.get(&path).cookie(&member).send().await;
    page.assert_contains("Limits that an administrator set");
}

#[tokio::test]
async fn teams_are_searched_sorted_and_paged() {
    let gateway = ConsoleGateway::new().await;
    gateway.account("ada", AccountRole::Owner).await;
    let mia = gateway.account("mia", AccountRole::Member).await;
    for number in 0..30 {
        team(&gateway, &format!("Crew {number:02}"), &[]).await;
    }
    let night = team(&gateway, "Night", &[(&mia, TeamRole::Manager)]).await;
    let key = key_by(&gateway, &night, &mia, "shared").await;
    gateway.store.post(&[entry(&key, "r1", "demo-chat", 5)]).await.unwrap();
    let cookie = gateway.sign_in("ada").await;
    let get = async |query: &str| {
        gateway.get(&format!("/console/teams?{query}")).cookie(&cookie).send().await
    };
    let first = get("").await;
    first.assert_contains("Page 1 of 2");
    first.assert_lacks("Night");
    get("page=2").await.assert_contains("Night");
    get("page=7&q=crew").await.assert_redirect("/console/teams?q=crew&page=2");
    let found = get("q=NIGHT").await;
    found.assert_contains("Night");
    found.assert_lacks("Crew 01");
    for sort in ["spent", "members", "created"] {
        let page = get(&format!("sort={sort}")).await.body;
        assert!(page.find("Night").unwrap() < page.find("Crew 29").unwrap(), "{sort}");
    }
    get("q=nobody").await.assert_contains("No matching teams");
    let cookie = gateway.sign_in("mia").await;
    let own = gateway.get("/console/teams").cookie(&cookie).send().await;
    own.assert_contains("Night");
    own.assert_lacks("Crew");
}

#[tokio::test]
async fn a_team_shows_what_its_budget_will_cost_at_this_pace() {
    let gateway = ConsoleGateway::new().await;
    let rob = gateway.account("rob", AccountRole::Member).await;
    let night = team(&gateway, "Night shift", &[(&rob, TeamRole::Manager)]).await;
    let shared = key_by(&gateway, &night, &rob, "shared").await;
    gateway.store.post(&[entry(&shared, "req_team", "m", 6_880_000_000)]).await.unwrap();
    let cookie = gateway.sign_in("rob").await;
    // 344 of the 744 hours of January have passed, and all of the days of this Friday's week but two.
    for (period, pace) in [(BudgetPeriod::Month, "$14.88"), (BudgetPeriod::Week, "$11.11")] {
        let budget = Some(BudgetTerms { limit: "20".parse().unwrap(), period });
        let terms = AccountTerms { budget, ..AccountTerms::default() };
        gateway.store.set_account_terms(&night.id, &terms).await.unwrap();
        let page = gateway.get(&at(&night)).cookie(&cookie).send().await;
        page.assert_contains("At this pace");
        page.assert_contains(pace);
    }
    // A third of the day has passed, in which nothing else was spent.
    let budget = Some(BudgetTerms { limit: "20".parse().unwrap(), period: BudgetPeriod::Day });
    let terms = AccountTerms { budget, ..AccountTerms::default() };
    gateway.store.set_account_terms(&night.id, &terms).await.unwrap();
    gateway.get(&at(&night)).cookie(&cookie).send().await.assert_contains("$20.64");
}
