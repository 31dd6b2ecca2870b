//! Sessions: a random token in a cookie, its digest in the store.

use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use canon::Micros;
use http::HeaderMap;
use http::request::Parts;
use store::{
    Account, AccountRole, KeyOwner, KeyRecord, LinkPurpose, Membership, Session, Team, TeamRole,
};

use crate::cookies::{self, CookieKind};
use crate::links::{self, LinkData};
use crate::page_error::PageError;
use crate::redirect::{redirect_to, see_other};
use crate::state::ConsoleState;
use crate::viewer_time::{ViewerClock, ViewerZone};
use crate::{known_device, urls};
use admin::random;
use admin::{Actor, TeamAction, is_gateway_admin, may_change, may_in_team};

const SESSION_LIFETIME: Micros = Micros::from_days(30);
const IDLE_TIMEOUT: Micros = Micros::from_days(7);
/// Shortest time between two updates of the last use, so that not every request writes to the
/// store.
const TOUCH_INTERVAL: Micros = Micros::from_secs(10 * 60);
/// Validity of a re-authentication.
const PROOF_LIFETIME: Micros = links::LINK_LIFETIMES.sign_in_step;
/// Accepted clock difference between two nodes.
const MAX_CLOCK_SKEW: Micros = Micros::from_secs(5 * 60);

/// A signed-in user. Only the session guard creates it.
#[derive(Clone, Debug)]
pub(crate) struct SignedInUser {
    pub(crate) account: Account,
    pub(crate) memberships: Vec<Membership>,
    /// The team the user acts for in this request; `None` for their own account.
    pub(crate) team: Option<Team>,
    /// Zone in which pages show times.
    pub(crate) zone: ViewerZone,
    /// True if the user has chosen it in place of that of the browser.
    pub(crate) has_chosen_zone: bool,
    session_hash: Vec<u8>,
    started_at: Micros,
}

impl SignedInUser {
    /// Returns the clock of the user.
    pub(crate) fn clock(&self, state: &ConsoleState) -> ViewerClock {
        ViewerClock { now: state.now(), zone: self.zone.clone() }
    }

    /// The user as the actor of an admin use case.
    pub(crate) fn actor(&self) -> Actor {
        Actor::Person(self.account.clone())
    }

    /// Returns true if the account administers the gateway.
    pub(crate) const fn is_administrator(&self) -> bool {
        is_gateway_admin(&self.account)
    }

    /// Returns true if pages show the keys and calls of all accounts.
    pub(crate) const fn sees_all(&self) -> bool {
        self.is_administrator() && self.team.is_none()
    }

    /// Id of the account or team the user acts for. Pages show its keys and calls, and new keys
    /// belong to it.
    pub(crate) fn owner_id(&self) -> &str {
        self.team.as_ref().map_or(&self.account.id, |team| &team.id)
    }

    /// Path of a page with the chosen team.
    pub(crate) fn path_for(&self, path: &str) -> String {
        self.team.as_ref().map_or_else(|| path.to_owned(), |team| urls::with_team(path, &team.id))
    }

    /// Role of the user in a team.
    pub(crate) fn role_in(&self, team_id: &str) -> Option<TeamRole> {
        self.memberships
            .iter()
            .find(|membership| membership.team.id == team_id)
            .map(|membership| membership.role)
    }

    /// Returns true if the user may perform the action in the team.
    pub(crate) fn may_in(&self, team: &Team, action: TeamAction) -> bool {
        may_in_team(&self.account, team, self.role_in(&team.id), action)
    }

    /// Returns the team if the user may see it. Otherwise it counts as not found.
    pub(crate) async fn find_team(
        &self,
        state: &ConsoleState,
        id: &str,
    ) -> Result<Team, PageError> {
        let team = state.store.team(id).await?.filter(|team| self.may_in(team, TeamAction::View));
        team.ok_or(PageError::NotFound)
    }

    /// Returns true if the user may see the data of an account or team.
    pub(crate) fn may_see(&self, account_id: &str) -> bool {
        account_id == self.account.id
            || self.is_administrator()
            || self.role_in(account_id).is_some()
    }

    /// Returns true if the user may create keys for the account or team they act for.
    pub(crate) fn may_create_keys(&self) -> bool {
        match (&self.team, self.account.role) {
            (Some(team), _) => self.may_in(team, TeamAction::CreateKeys),
            (None, AccountRole::Owner | AccountRole::Admin | AccountRole::Member) => true,
            (None, AccountRole::Viewer) => false,
        }
    }

    /// Returns true if the user may change a key of this owner.
    pub(crate) fn may_change_key(&self, key: &KeyRecord, owner: &KeyOwner) -> bool {
        match owner {
            KeyOwner::Person(other) => self.may_change(other),
            KeyOwner::Team(team) => {
                let own = key.created_by.as_ref() == Some(&self.account.id);
                self.may_in(
                    team,
                    if own { TeamAction::ChangeOwnKey } else { TeamAction::ChangeOtherKey },
                )
            }
        }
    }

    /// Returns true if the user may change the data of another account.
    pub(crate) fn may_change(&self, other: &Account) -> bool {
        may_change(&self.account, other)
    }

    /// Returns true if the user may invite people and change the sign-up mode.
    pub(crate) const fn may_invite(&self) -> bool {
        self.is_administrator()
    }

    /// Returns true if the user signed in or re-authenticated recently.
    pub(crate) async fn has_recent_proof(&self, state: &ConsoleState) -> Result<bool, PageError> {
        if state.now() - self.started_at < PROOF_LIFETIME {
            return Ok(true);
        }
        let proof = state.store.link(&self.proof_hash()).await?;
        Ok(proof.is_some_and(|link| {
            link.purpose == LinkPurpose::Proof && links::is_valid(state, &link)
        }))
    }

    /// Records a re-authentication for this session only.
    pub(crate) async fn record_proof(&self, state: &ConsoleState) -> Result<(), PageError> {
        let (hash, id) = (self.proof_hash(), &self.account.id);
        state.store.take_link(&hash, LinkPurpose::Proof).await?;
        links::add(state, hash, LinkPurpose::Proof, Some(id), &LinkData::default(), PROOF_LIFETIME)
            .await
    }

    /// Key of that record, derived from the session so that only its holder can know it.
    fn proof_hash(&self) -> Vec<u8> {
        random::digest(&format!("proof of {}", random::hex(&self.session_hash)))
    }

    /// Ends the session and sends the browser to the sign-in page.
    pub(crate) async fn end_session(self, state: &ConsoleState) -> Result<Response, PageError> {
        state.store.drop_session(&self.session_hash).await?;
        let mut response = see_other("/login");
        cookies::clear(state, &mut response, CookieKind::Session);
        Ok(response)
    }
}

/// Without the session guard there is no user, so a page behind the wrong guard redirects to the
/// sign-in page.
impl<S: Send + Sync> FromRequestParts<S> for SignedInUser {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        parts.extensions.get().cloned().ok_or_else(|| see_other("/login").into_response())
    }
}

/// Returns the user of a request; `None` without a valid session.
pub(crate) async fn find_session(
    state: &ConsoleState,
    headers: &HeaderMap,
) -> Result<Option<SignedInUser>, PageError> {
    let Some(hash) = sent_session_hash(state, headers) else { return Ok(None) };
    let Some((session, account)) = state.store.session(&hash).await? else { return Ok(None) };
    let now = state.now();
    let expired = now >= session.expires || now - session.seen >= IDLE_TIMEOUT;
    // A clock that is set back must not revive an expired session.
    let from_future = now + MAX_CLOCK_SKEW < session.created.max(session.seen);
    if expired || from_future || account.disabled {
        return Ok(None);
    }
    if now - session.seen > TOUCH_INTERVAL {
        state.store.touch_session(&hash, now).await?;
    }
    let seats = state.store.memberships_of(&account.id).await?;
    Ok(Some(SignedInUser {
        account,
        memberships: seats,
        team: None,
        zone: cookies::read_zone(headers),
        has_chosen_zone: cookies::chosen_zone(headers).is_some(),
        session_hash: hash,
        started_at: session.created,
    }))
}

/// Starts a session and redirects the browser. The previous session of the browser ends, which
/// defeats session fixation (<https://owasp.org/www-community/attacks/Session_fixation>).
pub(crate) async fn start_session(
    state: &ConsoleState,
    headers: &HeaderMap,
    account: &Account,
    next: &str,
) -> Result<Response, PageError> {
    let now = state.now();
    if let Some(old) = sent_session_hash(state, headers) {
        state.store.drop_session(&old).await?;
    }
    if let Err(error) = state.store.drop_expired_sessions(now).await {
        tracing::warn!("cannot delete expired sessions: {error}");
    }
    let token = random::random_token().map_err(|_| PageError::Internal)?;
    let session = Session {
        hash: random::digest(&token),
        account_id: account.id.clone(),
        created: now,
        expires: now + SESSION_LIFETIME,
        seen: now,
    };
    state.store.add_session(&session).await?;
    let mut response = redirect_to(next);
    cookies::set(state, &mut response, CookieKind::Session, &token, SESSION_LIFETIME.as_secs());
    known_device::remember(state, headers, account, &mut response).await?;
    for kind in [CookieKind::Link, CookieKind::SecondFactor, CookieKind::IdentityFlow] {
        if cookies::read(state, headers, kind).is_some() {
            cookies::clear(state, &mut response, kind);
        }
    }
    Ok(response)
}

/// Digest of the session token in the request.
fn sent_session_hash(state: &ConsoleState, headers: &HeaderMap) -> Option<Vec<u8>> {
    cookies::read(state, headers, CookieKind::Session).map(|token| random::digest(&token))
}
