//! The objects that an import makes, computed from another gateway's data and from what is here already.

use access::keys::{KeyToken, keyed_foreign_hash, plain_foreign_hash};
use admin::{
    AccountAdmin, ImportedAccount, ImportedKey, ImportedTeam, KeyDraft, OpeningSpend, random,
};
use canon::Money;
use std::collections::{BTreeMap, BTreeSet};
use store::{AccountTerms, KeyGrants, KeyOwner, KeyScope};

use super::plan_names::{TakenNames, clean_label};
use super::source_data::{
    SourceData, SourceKey, SourceOwner, SourcePerson, SourceSecret, SourceTeam, SourceTerms,
};
use super::spend_split::SpendSplit;

/// Name of a key that has the spending of an account that none of its keys has.
const REST_KEY_NAME: &str = "spent before the import";

/// Largest spending to date that is believed. The ledger has room for some ninety of them.
const MAX_SPENT: Money = Money::from_nanos(100_000_000 * 1_000_000_000);

/// A person or team that owns keys after the import.
#[derive(Debug)]
pub(super) enum PlannedOwner {
    /// Made by this import.
    Person(ImportedAccount),
    /// Made by this import.
    Team(ImportedTeam),
    /// Here from an earlier import.
    Known { id: String, name: String },
    /// Here for another reason.
    Existing { id: String, name: String },
}

impl PlannedOwner {
    pub(super) fn id(&self) -> &str {
        match self {
            Self::Person(ImportedAccount { id, .. })
            | Self::Team(ImportedTeam { id, .. })
            | Self::Known { id, .. }
            | Self::Existing { id, .. } => id,
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Person(ImportedAccount { username: name, .. })
            | Self::Team(ImportedTeam { name, .. })
            | Self::Known { name, .. }
            | Self::Existing { name, .. } => name,
        }
    }
}

/// A key, with the name of its owner.
#[derive(Debug)]
pub(super) struct PlannedKey {
    pub(super) key: ImportedKey,
    pub(super) owner_name: String,
    /// True if it is here from an earlier import.
    pub(super) is_known: bool,
}

/// Everything that an import makes.
#[derive(Debug, Default)]
pub(super) struct ImportPlan {
    pub(super) owners: Vec<PlannedOwner>,
    pub(super) keys: Vec<PlannedKey>,
    pub(super) notes: Vec<String>,
}

/// Words of the source, for ids and for the lane of earlier spending.
#[derive(Clone, Copy)]
pub(super) struct SourceName<'a> {
    /// The program, such as `litellm`.
    pub(super) program: &'a str,
    /// Word that tells two installations of it apart.
    pub(super) label: &'a str,
}

impl SourceName<'_> {
    fn subject(&self, kind: &str, id: &str) -> String {
        let Self { program, label } = self;
        format!("{program}/{label}/{kind}/{id}")
    }
}

/// State of the store that a plan depends on.
struct StoreState {
    owners: BTreeMap<String, KeyOwner>,
    terms: BTreeMap<String, AccountTerms>,
}

/// The parts that are put together to a plan.
pub(super) struct Planner<'a> {
    admin: &'a AccountAdmin,
    source: SourceName<'a>,
    state: StoreState,
    names: TakenNames,
    plan: ImportPlan,
}

impl<'a> Planner<'a> {
    /// Reads the state of the store.
    pub(super) async fn open(
        admin: &'a AccountAdmin,
        source: SourceName<'a>,
    ) -> anyhow::Result<Self> {
        let owners = admin.store.owners().await?;
        let mut names = TakenNames::default();
        for owner in &owners {
            names.take(owner.name());
            if let KeyOwner::Person(account) = owner {
                account.email.iter().for_each(|email| names.take(email));
            }
        }
        let owners = owners.into_iter().map(|owner| (owner.id().to_owned(), owner)).collect();
        let terms = admin.store.account_terms().await?.into_iter().collect();
        let state = StoreState { owners, terms };
        Ok(Self { admin, source, state, names, plan: ImportPlan::default() })
    }

    /// Plans the import of all data. `gateway_owner` is the id of the gateway's owner.
    pub(super) async fn plan(
        mut self,
        data: SourceData,
        gateway_owner: &str,
    ) -> anyhow::Result<ImportPlan> {
        let SourceData { people, teams, keys, notes } = data;
        self.plan.notes = notes;
        let people = self.plausible(people, |one| (&one.id, one.terms.spent), "account");
        let teams = self.plausible(teams, |one| (&one.name, one.terms.spent), "team");
        let keys = self.plausible(keys, |one| (&one.name, one.terms.spent), "key");
        let keys = self.without_own_form(keys);
        let mut ids: BTreeMap<SourceOwner, usize> = BTreeMap::new();
        let mut terms: Vec<SourceTerms> = Vec::new();
        let known = self.state.owners.get(gateway_owner);
        let name = known.map_or("owner", |known| known.name()).to_owned();
        let owner = PlannedOwner::Existing { id: gateway_owner.to_owned(), name };
        ids.insert(SourceOwner::Gateway, 0);
        terms.push(SourceTerms::default());
        self.plan.owners.push(owner);
        for person in people {
            ids.insert(SourceOwner::Person(person.id.clone()), self.plan.owners.len());
            terms.push(person.terms);
            let planned = self.person(person);
            self.plan.owners.push(planned);
        }
        for team in teams {
            let (source, own) = (SourceOwner::Team(team.id.clone()), team.terms);
            let planned = self.team(team, &ids);
            ids.insert(source, self.plan.owners.len());
            terms.push(own);
            self.plan.owners.push(planned);
        }
        let mut of_owner: BTreeMap<usize, Vec<SourceKey>> = BTreeMap::new();
        for key in keys {
            match ids.get(&key.owner) {
                Some(at) => of_owner.entry(*at).or_default().push(key),
                None => {
                    let why = "its owner is not in the database, so it is left out";
                    self.plan.notes.push(format!("key `{}`: {why}", key.name));
                }
            }
        }
        for (at, terms) in terms.iter().enumerate() {
            let keys = of_owner.remove(&at).unwrap_or_default();
            self.keys_of(at, terms, keys, &ids).await?;
        }
        // The gateway's owner is no object of the import.
        self.plan.owners.remove(0);
        let mut told = BTreeSet::new();
        self.plan.notes.retain(|note| told.insert(note.clone()));
        Ok(self.plan)
    }

    /// Leaves out objects that have spent more than sums of the ledger could hold.
    fn plausible<T>(
        &mut self,
        objects: Vec<T>,
        read: impl Fn(&T) -> (&String, Money),
        kind: &str,
    ) -> Vec<T> {
        let is_kept = |object: &T| {
            let (name, spent) = read(object);
            if spent > MAX_SPENT {
                self.plan.notes.push(format!(
                    "{kind} `{name}`: it has spent {spent} USD, which cannot be true, so it is left out"
                ));
            }
            spent <= MAX_SPENT
        };
        objects.into_iter().filter(is_kept).collect()
    }

    /// Leaves out keys whose text has the form of this gateway's own: such a text is looked up as one of them.
    fn without_own_form(&mut self, keys: Vec<SourceKey>) -> Vec<SourceKey> {
        let is_kept = |key: &SourceKey| {
            let is_own = match &key.secret {
                SourceSecret::Text(text) => KeyToken::parse(text).is_some(),
                SourceSecret::Sha256(_) => false,
            };
            if is_own {
                self.plan.notes.push(format!(
                    "key `{}`: its text has the form of the keys of this gateway, so it is left out; \
                     create one with `portunus keys create`",
                    key.name
                ));
            }
            !is_own
        };
        keys.into_iter().filter(is_kept).collect()
    }

    fn person(&mut self, person: SourcePerson) -> PlannedOwner {
        let SourcePerson { id, names, email, role, disabled, terms: _, models, limits } = person;
        let id = self.admin.imported_id(&self.source.subject("person", &id));
        if let Some(known) = self.state.owners.get(&id) {
            return PlannedOwner::Known { id, name: known.name().to_owned() };
        }
        let said = names.first().cloned().unwrap_or_default();
        let email = email.filter(|email| {
            let is_good = admin::names::is_email_address(email);
            if !is_good {
                self.plan.notes.push(format!(
                    "account `{said}`: its e-mail address is not one and is left out"
                ));
            }
            is_good
        });
        let same = email.as_deref().and_then(|email| self.state.person_with(email));
        if let Some((id, name)) = same {
            self.plan.notes.push(format!(
                "account `{said}`: the account `{name}` here has its e-mail address and gets its keys; its \
                 role and its limits stay as they are"
            ));
            return PlannedOwner::Existing { id, name };
        }
        let username = self.names.username(&names, email.as_deref());
        if username != said {
            self.plan.notes.push(format!("account `{said}`: its username here is `{username}`"));
        }
        let email = email.filter(|email| {
            let is_free = self.names.try_take(email);
            if !is_free {
                self.plan.notes.push(format!(
                    "account `{username}`: its e-mail address is taken and left out"
                ));
            }
            is_free
        });
        let terms = AccountTerms { models, ..AccountTerms::default() };
        PlannedOwner::Person(ImportedAccount { id, username, email, role, disabled, terms, limits })
    }

    fn team(&mut self, team: SourceTeam, ids: &BTreeMap<SourceOwner, usize>) -> PlannedOwner {
        let SourceTeam { id, name, disabled, terms: _, models, limits, members } = team;
        let id = self.admin.imported_id(&self.source.subject("team", &id));
        if let Some(known) = self.state.owners.get(&id) {
            return PlannedOwner::Known { id, name: known.name().to_owned() };
        }
        let chosen = self.names.team_name(&name);
        if chosen != name {
            self.plan.notes.push(format!("team `{name}`: its name here is `{chosen}`"));
        }
        let mut seats = BTreeMap::new();
        for (person, role) in members {
            let place = ids.get(&SourceOwner::Person(person.clone()));
            match place.and_then(|at| self.plan.owners.get(*at)) {
                Some(member) => {
                    seats.insert(member.id().to_owned(), role);
                }
                None => self.plan.notes.push(format!(
                    "team `{chosen}`: its member `{person}` has no account in the database and is left out"
                )),
            }
        }
        let terms = AccountTerms { models, ..AccountTerms::default() };
        let members = seats.into_iter().collect();
        PlannedOwner::Team(ImportedTeam { id, name: chosen, disabled, terms, limits, members })
    }

    /// Plans the keys of an owner, and its limits if it is made.
    async fn keys_of(
        &mut self,
        at: usize,
        terms: &SourceTerms,
        keys: Vec<SourceKey>,
        ids: &BTreeMap<SourceOwner, usize>,
    ) -> anyhow::Result<()> {
        let Some(owner) = self.plan.owners.get(at) else { return Ok(()) };
        let (owner_id, owner_name) = (owner.id().to_owned(), owner.name().to_owned());
        let is_imported = !matches!(owner, PlannedOwner::Existing { .. });
        let is_new = matches!(owner, PlannedOwner::Person(_) | PlannedOwner::Team(_));
        let mut splits: Vec<SpendSplit> =
            keys.iter().map(|key| SpendSplit::of_key(&key.terms)).collect();
        let mut refs: Vec<&mut SpendSplit> = splits.iter_mut().collect();
        let mut account = SpendSplit::default();
        if is_imported {
            account = SpendSplit::of_account(terms, &mut refs);
        }
        let mut planned = Vec::new();
        for (key, split) in keys.into_iter().zip(splits) {
            let maker = key.created_by.clone().map(SourceOwner::Person);
            let maker = maker.and_then(|maker| self.plan.owners.get(*ids.get(&maker)?));
            let created_by = maker.map(|maker| maker.id().to_owned());
            planned.push((self.key(key, &owner_id, created_by), split));
        }
        if account.spend.total() > Money::ZERO {
            let subject = self.source.subject("rest", &owner_id);
            planned.push((
                self.rest_key(&subject, &owner_id),
                SpendSplit { spend: account.spend, ..SpendSplit::default() },
            ));
        }
        let mut seen = BTreeSet::new();
        let mut made = Vec::new();
        for (mut key, split) in planned {
            if !seen.insert(key.id.clone()) {
                self.plan.notes.push(format!(
                    "key `{}`: another key has the same text, so it is left out",
                    key.draft.name
                ));
                continue;
            }
            // All keys were read when the accounts were opened.
            let is_known = self.admin.keys.get(&key.id).is_some();
            key.spend = split.spend;
            (key.draft.cap, key.draft.budget) = (split.cap, split.budget);
            made.push((PlannedKey { key, owner_name: owner_name.clone(), is_known }, split));
        }
        let limits = self.state.terms.get(&owner_id).cloned().unwrap_or_default();
        let is_limited = limits.cap.is_some() || limits.budget.is_some();
        let new_spend = made.iter().filter(|(key, _)| !key.is_known).map(|(key, _)| key.key.spend);
        let new_spend: Vec<OpeningSpend> = new_spend.collect();
        let has_room = match (is_limited, is_imported) {
            (false, _) => true,
            // Money that was spent elsewhere does not count against a limit that was set here.
            (true, false) => false,
            (true, true) => self.has_room(&owner_id, &limits, &new_spend).await?,
        };
        for (mut key, mut split) in made {
            if !has_room && !key.is_known && key.key.spend.total() > Money::ZERO {
                if key.key.hash.is_none() {
                    continue;
                }
                split.forget_spend();
                (key.key.draft.cap, key.key.spend) = (split.cap, split.spend);
                self.plan.notes.push(format!(
                    "key `{}`: its spending to date does not fit the limits of `{owner_name}` here and is not \
                     carried; a cap of the key is what was left of it",
                    key.key.draft.name
                ));
            }
            self.plan.keys.push(key);
        }
        if is_new && let Some(owner) = self.plan.owners.get_mut(at) {
            let own = match owner {
                PlannedOwner::Person(account) => &mut account.terms,
                PlannedOwner::Team(team) => &mut team.terms,
                PlannedOwner::Known { .. } | PlannedOwner::Existing { .. } => return Ok(()),
            };
            (own.cap, own.budget) = (account.cap, account.budget);
        }
        Ok(())
    }

    /// Returns true if so much more spending stays within the limits of an owner.
    async fn has_room(
        &self,
        owner_id: &str,
        limits: &AccountTerms,
        spend: &[OpeningSpend],
    ) -> anyhow::Result<bool> {
        let store = &self.admin.store;
        let fits = |spent: Money, more: Money, limit: Money| spent.saturating_add(more) <= limit;
        if let Some(cap) = limits.cap {
            let (spent, _) = store.account_spending(owner_id).await?;
            if !fits(spent, spend.iter().map(|spend| spend.total()).sum(), cap) {
                return Ok(false);
            }
        }
        if let Some(budget) = limits.budget {
            let now = self.admin.now();
            let (_, spent) = store.account_spent_in(owner_id, budget.period, now).await?;
            return Ok(fits(spent, spend.iter().map(|spend| spend.current).sum(), budget.limit));
        }
        Ok(true)
    }

    fn key(&self, key: SourceKey, owner_id: &str, created_by: Option<String>) -> ImportedKey {
        let SourceKey { name, models, limits, ips, expires, blocked, secret, old_secret, .. } = key;
        let pepper = self.admin.keys.pepper();
        let (subject, hash) = match &secret {
            SourceSecret::Sha256(sha256) => (random::hex(sha256), plain_foreign_hash(sha256)),
            SourceSecret::Text(text) => {
                (random::hex(&random::digest(text)), keyed_foreign_hash(pepper, text))
            }
        };
        let draft = KeyDraft {
            scope: KeyScope::Call,
            grants: KeyGrants::default(),
            name: clean_label(&name),
            cap: None,
            models,
            expires,
            limits,
            ips,
            budget: None,
        };
        ImportedKey {
            id: self.admin.imported_key_id(&format!("key/{subject}")),
            owner_id: owner_id.to_owned(),
            created_by,
            draft,
            hash: Some(hash),
            old_hash: old_secret.map(|(sha256, until)| (plain_foreign_hash(&sha256), until)),
            blocked,
            spend: OpeningSpend::default(),
            lane: self.lane(),
        }
    }

    fn rest_key(&self, subject: &str, owner_id: &str) -> ImportedKey {
        ImportedKey {
            id: self.admin.imported_key_id(subject),
            owner_id: owner_id.to_owned(),
            created_by: None,
            draft: KeyDraft::for_calls(REST_KEY_NAME.to_owned()),
            hash: None,
            old_hash: None,
            blocked: true,
            spend: OpeningSpend::default(),
            lane: self.lane(),
        }
    }

    /// Returns the lane that earlier spending is shown with.
    fn lane(&self) -> String {
        format!("imported/{}", self.source.program)
    }
}

impl StoreState {
    /// Returns id and name of the person with that address.
    fn person_with(&self, email: &str) -> Option<(String, String)> {
        self.owners.values().find_map(|owner| match owner {
            KeyOwner::Person(account) => {
                let own = account.email.as_deref()?;
                own.eq_ignore_ascii_case(email)
                    .then(|| (account.id.clone(), account.username.clone()))
            }
            KeyOwner::Team(_) => None,
        })
    }
}
