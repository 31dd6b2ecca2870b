//! Rights in teams: every cell of the table, tested through the pages.

use canon::Micros;
use http::{Method, StatusCode};
use store::{Account, AccountRole, AccountTerms, KeyRecord, RateLimits, Team, TeamRole};

use crate::gateway::{ConsoleGateway, START, key};

/// Actors in order: name, gateway role, role in their own team.
const ACTORS: [(&str, AccountRole, TeamRole); 6] = [
    ("olga", AccountRole::Owner, TeamRole::Viewer),
    ("ada", AccountRole::Admin, TeamRole::Viewer),
    ("max", AccountRole::Member, TeamRole::Manager),
    ("mia", AccountRole::Member, TeamRole::Member),
    ("vic", AccountRole::Member, TeamRole::Viewer),
    // A gateway viewer cannot change anything, whatever the team role.
    ("wim", AccountRole::Viewer, TeamRole::Manager),
];

/// Team in which the action is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TeamChoice {
    /// The actor's own team.
    Own,
    /// A team the actor has left; it still has a key the actor created.
    Other,
    /// A team that does not exist.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TriedAction {
    See,
    SeeOverview,
    SeeReceipt,
    MakeKey,
    EditOwn,
    RotateOwn,
    RevokeOwn,
    PlayOwn,
    EditOther,
    RotateOther,
    RevokeOther,
    PlayOther,
    AddMember,
    ChangeMember,
    AskRemove,
    RemoveMember,
    Leave,
    SetTerms,
    Close,
    Open,
}

/// Expected results, one letter per actor: `d` done, `f` forbidden, `n` not found.
const TABLE: [(TriedAction, &str, &str, &str); 20] = [
    (TriedAction::See, "dddddd", "ddnnnn", "nnnnnn"),
    (TriedAction::SeeOverview, "dddddd", "ddnnnn", "nnnnnn"),
    (TriedAction::SeeReceipt, "dddddd", "ddnnnn", "nnnnnn"),
    (TriedAction::MakeKey, "ddddff", "ddnnnn", "nnnnnn"),
    (TriedAction::EditOwn, "ddddff", "ddnnnn", "nnnnnn"),
    (TriedAction::RotateOwn, "ddddff", "ddnnnn", "nnnnnn"),
    (TriedAction::RevokeOwn, "ddddff", "ddnnnn", "nnnnnn"),
    (TriedAction::PlayOwn, "ddddnf", "ddnnnf", "nnnnnf"),
    (TriedAction::EditOther, "dddfff", "ddnnnn", "nnnnnn"),
    (TriedAction::RotateOther, "dddfff", "ddnnnn", "nnnnnn"),
    (TriedAction::RevokeOther, "dddfff", "ddnnnn", "nnnnnn"),
    (TriedAction::PlayOther, "dddnnf", "ddnnnf", "nnnnnf"),
    (TriedAction::AddMember, "dddfff", "ddnnnn", "nnnnnn"),
    (TriedAction::ChangeMember, "dddfff", "ddnnnn", "nnnnnn"),
    (TriedAction::AskRemove, "dddfff", "ddnnnn", "nnnnnn"),
    (TriedAction::RemoveMember, "dddfff", "ddnnnn", "nnnnnn"),
    (TriedAction::Leave, "dddddd", "nnnnnn", "nnnnnn"),
    (TriedAction::SetTerms, "ddffff", "ddnnnn", "nnnnnn"),
    (TriedAction::Close, "ddffff", "ddnnnn", "nnnnnn"),
    (TriedAction::Open, "ddffff", "ddnnnn", "nnnnnn"),
];

struct TestTeam {
    team: Team,
    own: KeyRecord,
    other: KeyRecord,
    member: Account,
}

/// All state of a team that an action could change.
type TeamState = (
    Option<Team>,
    Vec<(String, AccountTerms)>,
    Vec<(String, RateLimits)>,
    Vec<(String, TeamRole)>,
    Vec<KeyRecord>,
);

struct RightsFixture {
    gateway: ConsoleGateway,
    /// Member of every team, so that each has a manager.
    head: Account,
    member: Account,
    newcomer: Account,
    made: usize,
}

impl RightsFixture {
    async fn new() -> Self {
        let gateway = ConsoleGateway::new().await;
        let head = gateway.account("head", AccountRole::Member).await;
        let member = gateway.account("rob", AccountRole::Member).await;
        let newcomer = gateway.account("zoe", AccountRole::Member).await;
        Self { gateway, head, member, newcomer, made: 0 }
    }

    async fn ground(&mut self, actor: &Account, seat: Option<TeamRole>, closed: bool) -> TestTeam {
        self.made += 1;
        let store = &self.gateway.store;
        let team = Team {
            id: uuid::Uuid::now_v7().to_string(),
            name: format!("Team {}", self.made),
            disabled: false,
            created: START,
            changed: START,
        };
        store.add_team(&team).await.unwrap();
        let seats = [
            (&self.head, Some(TeamRole::Manager)),
            (&self.member, Some(TeamRole::Viewer)),
            (actor, seat),
        ];
        for (who, role) in seats.into_iter().filter(|(_, role)| role.is_some()) {
            store.set_member(&team.id, &who.id, role, false, START).await.unwrap();
        }
        let mut keys = Vec::new();
        for (word, maker) in [("own", actor), ("other", &self.head)] {
            let id = format!("{word}{}", self.made);
            let mut record = key(&id, &team.id, word, None, Vec::new(), None);
            record.created_by = Some(maker.id.clone());
            store.add_key(&record).await.unwrap();
            let entry = crate::gateway::entry(&record, &format!("req_{id}"), "demo-chat", 5);
            store.post(&[entry]).await.unwrap();
            keys.push(record);
        }
        if closed {
            store.set_disabled(&team.id, true, START).await.unwrap();
        }
        let [own, other] = <[KeyRecord; 2]>::try_from(keys).unwrap();
        TestTeam { team, own, other, member: self.member.clone() }
    }

    async fn print(&self, team_id: &str) -> TeamState {
        let store = &self.gateway.store;
        let members = store.members(team_id).await.unwrap();
        (
            store.team(team_id).await.unwrap(),
            store.account_terms().await.unwrap(),
            store.account_limits().await.unwrap(),
            members.into_iter().map(|member| (member.account.id, member.role)).collect(),
            store.keys_of(team_id).await.unwrap(),
        )
    }

    async fn attempt(
        &self,
        deed: TriedAction,
        ground: &TestTeam,
        actor: &Account,
        cookie: &str,
    ) -> u16 {
        let TestTeam { team, own, other, member } = ground;
        let team = format!("/console/teams/{}", team.id);
        let person = format!("{team}/members/{}", member.id);
        let get = |path: String| (Method::GET, path, vec![]);
        let post =
            |path: String, fields: Vec<(&'static str, &'static str)>| (Method::POST, path, fields);
        let edit = vec![("name", "edited"), ("unlimited", "yes")];
        let rotate = vec![("overlap", "none")];
        let of = |key: &KeyRecord, verb: &str| format!("/console/keys/{}/{verb}", key.id);
        let (method, path, fields) = match deed {
            TriedAction::See => get(team),
            TriedAction::SeeOverview => get(format!("/console?for={}", ground.team.id)),
            TriedAction::SeeReceipt => get(format!("/console/calls/req_{}", other.id)),
            TriedAction::MakeKey => post(format!("/console/keys?for={}", ground.team.id), edit),
            TriedAction::EditOwn => post(of(own, "edit"), edit),
            TriedAction::EditOther => post(of(other, "edit"), edit),
            TriedAction::RotateOwn => post(of(own, "rotate"), rotate),
            TriedAction::RotateOther => post(of(other, "rotate"), rotate),
            TriedAction::RevokeOwn => post(of(own, "revoke"), vec![]),
            TriedAction::RevokeOther => post(of(other, "revoke"), vec![]),
            TriedAction::PlayOwn | TriedAction::PlayOther => {
                let key = if deed == TriedAction::PlayOwn { own } else { other };
                let path = "/console/playground/call/v1/chat/completions";
                let ask = self.gateway.ask(Method::POST, path).cookie(cookie);
                let ask = ask.with("sec-fetch-site", "same-origin");
                return ask.with("x-playground-key", &key.id).send().await.status.as_u16();
            }
            TriedAction::AddMember => {
                post(format!("{team}/members"), vec![("login", "zoe"), ("role", "member")])
            }
            TriedAction::ChangeMember => post(person, vec![("role", "member")]),
            TriedAction::AskRemove => get(format!("{person}/remove")),
            TriedAction::RemoveMember => post(format!("{person}/remove"), vec![]),
            TriedAction::Leave => post(format!("{team}/members/{}/remove", actor.id), vec![]),
            TriedAction::SetTerms => {
                let fields = [("name", ground.team.name.as_str()), ("cap", "7"), ("rpm", "9")];
                let ask = self.gateway.post(&team, &fields).cookie(cookie);
                return ask.send().await.status.as_u16();
            }
            TriedAction::Close => post(format!("{team}/close"), vec![]),
            TriedAction::Open => post(format!("{team}/open"), vec![]),
        };
        let ask = match method {
            Method::GET => self.gateway.get(&path),
            _ => self.gateway.post(&path, &fields),
        };
        ask.cookie(cookie).send().await.status.as_u16()
    }
}

#[tokio::test]
async fn every_cell_of_the_table_of_rights() {
    let mut world = RightsFixture::new().await;
    let nowhere = TestTeam {
        team: Team {
            id: uuid::Uuid::now_v7().to_string(),
            name: String::new(),
            disabled: false,
            created: Micros::ZERO,
            changed: Micros::ZERO,
        },
        own: key("nokey", "", "", None, Vec::new(), None),
        other: key("nokey", "", "", None, Vec::new(), None),
        member: world.newcomer.clone(),
    };
    let mut tried = 0;
    for (place, (name, role, seat)) in ACTORS.into_iter().enumerate() {
        let actor = world.gateway.account(name, role).await;
        let cookie = world.gateway.sign_in(name).await;
        for (deed, own, other, none) in TABLE {
            for (which, letters) in
                [(TeamChoice::Own, own), (TeamChoice::Other, other), (TeamChoice::None, none)]
            {
                let seat = (which == TeamChoice::Own).then_some(seat);
                let made = match which {
                    TeamChoice::None => None,
                    TeamChoice::Own | TeamChoice::Other => {
                        Some(world.ground(&actor, seat, deed == TriedAction::Open).await)
                    }
                };
                let ground = made.as_ref().unwrap_or(&nowhere);
                let before = world.print(&ground.team.id).await;
                let noted = world.gateway.store.audits(9_999).await.unwrap().len();
                let status = world.attempt(deed, ground, &actor, &cookie).await;
                let after = world.print(&ground.team.id).await;
                let notes = world.gateway.store.audits(9_999).await.unwrap().len() - noted;
                let cell = format!("{name}, {deed:?}, {which:?} team");
                let letter = letters.chars().nth(place).unwrap();
                let expected: &[u16] = match letter {
                    'd' => &[200, 303],
                    'f' => &[403],
                    'n' => &[404],
                    other => panic!("{other}"),
                };
                assert!(expected.contains(&status), "{cell}: {status}");
                let changes = !matches!(
                    deed,
                    TriedAction::See
                        | TriedAction::SeeOverview
                        | TriedAction::SeeReceipt
                        | TriedAction::AskRemove
                        | TriedAction::PlayOwn
                        | TriedAction::PlayOther
                );
                let done = letter == 'd' && changes;
                assert_eq!(before != after, done, "{cell}: what it changed");
                assert_eq!(notes > 0, done, "{cell}: what was noted of it");
                tried += 1;
            }
        }
    }
    assert_eq!(tried, ACTORS.len() * TABLE.len() * 3);
}

#[tokio::test]
async fn teams_are_made_by_administrators() {
    let gateway = ConsoleGateway::new().await;
    for (name, role, _) in ACTORS {
        gateway.account(name, role).await;
        let cookie = gateway.sign_in(name).await;
        let fields = [("name", &*format!("Crew of {name}")), ("cap", "5")];
        let got = gateway.post("/console/teams", &fields).cookie(&cookie).send().await;
        let may = matches!(role, AccountRole::Owner | AccountRole::Admin);
        assert_eq!(got.status.as_u16(), if may { 303 } else { 403 }, "{name}");
    }
    let teams = gateway.store.teams().await.unwrap();
    let names: Vec<&str> = teams.iter().map(|total| total.team.name.as_str()).collect();
    assert_eq!(names, ["Crew of olga", "Crew of ada"]);
}

#[tokio::test]
async fn surplus_team_fields_change_nothing() {
    let mut world = RightsFixture::new().await;
    let mia = world.gateway.account("mia", AccountRole::Member).await;
    let ground = world.ground(&mia, Some(TeamRole::Manager), false).await;
    let gateway = &world.gateway;
    let cookie = gateway.sign_in("mia").await;
    let team = format!("/console/teams/{}", ground.team.id);
    let extra = [
        ("account_id", mia.id.as_str()),
        ("made_by", mia.id.as_str()),
        ("team_id", "other"),
        ("for", "other"),
        ("cap", "1000000"),
        ("unlimited", "yes"),
        ("budget", "1000000"),
        ("spent", "0"),
        ("disabled", "true"),
        ("is_admin", "true"),
    ];
    let person = format!("{team}/members/{}", ground.member.id);
    for (path, fields) in [
        (format!("{team}/members"), vec![("login", "zoe"), ("role", "viewer")]),
        (person.clone(), vec![("role", "manager")]),
        (format!("{person}/remove"), vec![]),
    ] {
        let fields = [fields.as_slice(), extra.as_slice()].concat();
        let got = gateway.post(&path, &fields).cookie(&cookie).send().await;
        assert_eq!(got.status, StatusCode::SEE_OTHER, "{path}");
    }
    assert_eq!(gateway.store.account_terms().await.unwrap(), []);
    assert_eq!(gateway.store.team(&ground.team.id).await.unwrap(), Some(ground.team.clone()));
    for who in [&mia, &world.newcomer, &ground.member] {
        let seen = gateway.store.account(&who.id).await.unwrap().unwrap();
        assert_eq!(&seen, who, "a team's roles are not the gateway's");
    }
    let path = format!("/console/keys?for={}", ground.team.id);
    let fields = [[("name", "mine")].as_slice(), extra[..4].as_ref(), &[("cap", "3")]].concat();
    let got = gateway.post(&path, &fields).cookie(&cookie).send().await;
    assert_eq!(got.status, StatusCode::OK);
    let keys = gateway.store.keys_of(&ground.team.id).await.unwrap();
    let made = keys.iter().find(|key| key.name == "mine").unwrap();
    assert_eq!(made.created_by.as_ref(), Some(&mia.id));
    assert_eq!(gateway.store.keys_of(&mia.id).await.unwrap(), []);
}
