//! Sign-in of agents: a program asks, a person approves in the browser, and the program gets a key.
//!
//! There are two ways: the device grant (RFC 8628), in which the person confirms a short code, and
//! the authorization code with PKCE (RFC 6749 and 7636), in which the browser carries the code to a
//! port of the same machine. All steps are one-time links in the store, so that any node serves any
//! step.

use access::keys::{NewKeyToken, hash_token};
use canon::Micros;
use serde::{Deserialize, Serialize};
use store::{Account, KeyOwner, KeyRecord, KeyScope, Link, LinkPurpose, StoreError};

use crate::account_admin::AccountAdmin;
use crate::actor::Actor;
use crate::agent_codes::{
    AskingAgent, from_hex, new_user_code, no_randomness, pkce_challenge, user_code_hash,
};
use crate::error::AdminError;
use crate::keys::{KeyDraft, MAX_NAME_BYTES};
use crate::random;
use crate::refresh::{ACCESS_LIFE, TokenGrant, add_refresh, new_refresh_text};

/// Life of a device code and of its user code.
pub const DEVICE_CODE_LIFE: Micros = Micros::from_secs(600);
/// Life of an authorization code (RFC 6749, section 4.1.2, recommends at most ten minutes).
const AUTHORIZATION_CODE_LIFE: Micros = Micros::from_secs(60);

/// Codes of a sign-in that begins.
pub struct DeviceCodes {
    /// Secret of the agent.
    pub device_code: String,
    /// Code that the person confirms, such as `WDJB-MJHT`.
    pub user_code: String,
}

/// A sign-in that waits for the decision of a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingDevice {
    /// The program that asks.
    pub asking: AskingAgent,
    /// End of its codes.
    pub expires: Micros,
}

/// A person's approval: the owner of the key, and its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignInApproval {
    /// Id of the account or team that owns the key.
    pub owner_id: String,
    /// Name of the key.
    pub name: String,
}

/// Data of a device code.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct DeviceData {
    asking: AskingAgent,
    /// The decision of a person; absent until there is one, and `null` inside if it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<DeviceDecision>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum DeviceDecision {
    Approved(SignInApproval),
    Denied,
}

/// Data of a user code.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct UserCodeData {
    /// Digest of the device code, in hexadecimal digits.
    device: String,
}

/// A request for an authorization code, as it was sent with the browser.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CodeRequest {
    /// Identifier of the program.
    pub client_id: String,
    /// Address on the loopback interface that the browser is sent to.
    pub redirect_uri: String,
    /// Challenge of PKCE: the base64url SHA-256 of the verifier.
    pub challenge: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct AuthorizationData {
    request: CodeRequest,
    asking: AskingAgent,
    owner_id: String,
    name: String,
}

/// Answer to the poll of an agent.
#[derive(Debug)]
pub enum DevicePoll {
    /// Nobody has decided yet.
    Pending,
    /// The agent asks too often.
    TooFast,
    /// The person refused.
    Denied,
    /// The code is unknown, was used or has expired.
    Expired,
    /// The person approved, but may not have a key any more. The text says why.
    Refused(String),
    /// The person approved.
    Granted(TokenGrant),
}

impl AccountAdmin {
    /// Begins a sign-in of an agent. Returns the seconds to wait if its network begins too many.
    pub async fn begin_device_sign_in(
        &self,
        network: &str,
        asking: AskingAgent,
    ) -> Result<Result<DeviceCodes, u64>, AdminError> {
        if let Err(wait) = self.count_begin(network).await? {
            return Ok(Err(wait));
        }
        self.sweep_links().await;
        let data = DeviceData { asking, decision: None };
        let device_code = random::random_token().map_err(no_randomness)?;
        let device = self.sign_in_link(LinkPurpose::Device, &device_code, None, &data)?;
        self.store.add_link(&device).await?;
        // Two sign-ins with the same user code are refused by the store. That is very rare.
        for _ in 0..3 {
            let user_code = new_user_code()?;
            let data = UserCodeData { device: random::hex(&device.hash) };
            let link = Link {
                hash: user_code_hash(&user_code),
                ..self.sign_in_link(LinkPurpose::UserCode, "", None, &data)?
            };
            match self.store.add_link(&link).await {
                Ok(()) => return Ok(Ok(DeviceCodes { device_code, user_code })),
                Err(StoreError::Conflict(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(AdminError::Internal("no free user code was found".to_owned()))
    }

    /// Returns the sign-in with that user code, for the page that asks.
    pub async fn pending_device(
        &self,
        user_code: &str,
    ) -> Result<Option<PendingDevice>, AdminError> {
        let found = self.find_pending(user_code).await?;
        Ok(found
            .map(|(_, link, data)| PendingDevice { asking: data.asking, expires: link.expires }))
    }

    /// Returns the undecided sign-in with that user code: its two links and its data.
    async fn find_pending(
        &self,
        user_code: &str,
    ) -> Result<Option<(Link, Link, DeviceData)>, AdminError> {
        let code = self.store.link(&user_code_hash(user_code)).await?;
        let code = code.filter(|code| self.is_usable(code, LinkPurpose::UserCode));
        let Some(code) = code else { return Ok(None) };
        let UserCodeData { device } = serde_json::from_str(&code.data).unwrap_or_default();
        let Some(hash) = from_hex(&device) else { return Ok(None) };
        let link = self.store.link(&hash).await?;
        let link = link.filter(|link| self.is_usable(link, LinkPurpose::Device));
        let Some(link) = link else { return Ok(None) };
        let data: DeviceData = serde_json::from_str(&link.data).unwrap_or_default();
        Ok(data.decision.is_none().then_some((code, link, data)))
    }

    fn is_usable(&self, link: &Link, purpose: LinkPurpose) -> bool {
        link.purpose == purpose && self.now() < link.expires
    }

    /// Approves or, without an approval, refuses the sign-in with that user code. Each is decided
    /// once.
    pub async fn decide_device_sign_in(
        &self,
        actor: &Actor,
        user_code: &str,
        approval: Option<SignInApproval>,
    ) -> Result<(), AdminError> {
        let person = actor.require_person()?;
        let mut change = self.store.begin_change().await?;
        let (code, link, mut data) =
            self.find_pending(user_code).await?.ok_or(AdminError::NotFound("code"))?;
        let surface = data.asking.surface.clone();
        let (note, decision) = match approval {
            Some(approval) => {
                let owner = self.sign_in_owner(actor, &approval.owner_id).await?;
                self.require_may_create_keys(actor, &owner).await?;
                require_name(&approval.name)?;
                (
                    ["sign_in.approve", owner.id(), &surface].map(str::to_owned),
                    DeviceDecision::Approved(approval),
                )
            }
            None => {
                (["sign_in.deny", &person.id, &surface].map(str::to_owned), DeviceDecision::Denied)
            }
        };
        data.decision = Some(decision);
        let decided =
            Link { account_id: Some(person.id.clone()), data: json_text(&data)?, ..link.clone() };
        self.consume_link(&mut change, &code).await?;
        self.consume_link(&mut change, &link).await?;
        change.add_link(&decided).await?;
        let [action, subject, detail] = &note;
        self.commit(change, actor, &[[action, subject, detail]]).await?;
        Ok(())
    }

    /// Returns the owner of a new key, if it is the actor's own account or a team.
    async fn sign_in_owner(&self, actor: &Actor, id: &str) -> Result<KeyOwner, AdminError> {
        let person = actor.require_person()?;
        let owner = self.store.owner(id).await?.ok_or(AdminError::NotFound("team"))?;
        match &owner {
            // An agent acts for the person who signs in, whatever an administrator may do for others.
            KeyOwner::Person(account) if account.id != person.id => {
                Err(AdminError::forbidden("an agent signs in for your own account or your team"))
            }
            KeyOwner::Team(team) if self.team_role(&person.id, &team.id).await?.is_none() => {
                Err(AdminError::forbidden("only members of a team sign in for it"))
            }
            KeyOwner::Person(_) | KeyOwner::Team(_) => Ok(owner),
        }
    }

    /// Answers the poll of an agent. Of several polls at once, one gets the key.
    pub async fn poll_device(&self, device_code: &str) -> Result<DevicePoll, AdminError> {
        let link = self.store.link(&random::digest(device_code)).await?;
        let link = link.filter(|link| self.is_usable(link, LinkPurpose::Device));
        let Some(link) = link else { return Ok(DevicePoll::Expired) };
        let data: DeviceData = serde_json::from_str(&link.data).unwrap_or_default();
        match data.decision {
            None => match self.count_poll(&link.hash).await? {
                Ok(()) => Ok(DevicePoll::Pending),
                Err(_) => Ok(DevicePoll::TooFast),
            },
            Some(DeviceDecision::Denied) => {
                let taken = self.store.take_link(&link.hash, link.purpose).await?;
                Ok(taken.map_or(DevicePoll::Expired, |_| DevicePoll::Denied))
            }
            Some(DeviceDecision::Approved(approval)) => {
                match self.redeem(&link, &data.asking, &approval).await {
                    Ok(granted) => Ok(DevicePoll::Granted(granted)),
                    Err(AdminError::NotFound(_)) => Ok(DevicePoll::Expired),
                    Err(
                        error @ (AdminError::Forbidden(_)
                        | AdminError::Invalid { .. }
                        | AdminError::Conflict(_)),
                    ) => Ok(DevicePoll::Refused(error.to_string())),
                    Err(
                        error @ (AdminError::Stale
                        | AdminError::Concurrent
                        | AdminError::Store(_)
                        | AdminError::Internal(_)),
                    ) => Err(error),
                }
            }
        }
    }

    /// Approves an authorization request of a program and returns the code for it.
    pub async fn approve_code(
        &self,
        actor: &Actor,
        request: CodeRequest,
        asking: AskingAgent,
        approval: SignInApproval,
    ) -> Result<String, AdminError> {
        let person = actor.require_person()?;
        let mut change = self.store.begin_change().await?;
        let owner = self.sign_in_owner(actor, &approval.owner_id).await?;
        self.require_may_create_keys(actor, &owner).await?;
        require_name(&approval.name)?;
        let code = random::random_token().map_err(no_randomness)?;
        let surface = asking.surface.clone();
        let SignInApproval { owner_id, name } = approval;
        let data = AuthorizationData { request, asking, owner_id, name };
        let link = self.sign_in_link(LinkPurpose::Authorization, &code, Some(&person.id), &data)?;
        let expires = link.created + AUTHORIZATION_CODE_LIFE;
        change.add_link(&Link { expires, ..link }).await?;
        self.commit(change, actor, &[["sign_in.approve", owner.id(), &surface]]).await?;
        Ok(code)
    }

    /// Exchanges an authorization code for a key. `None` if the code is unknown, used or expired,
    /// or if it was made for another client, address or verifier.
    pub async fn redeem_code(
        &self,
        code: &str,
        verifier: &str,
        redirect_uri: &str,
        client_id: &str,
    ) -> Result<Option<TokenGrant>, AdminError> {
        let link = self.store.link(&random::digest(code)).await?;
        let Some(link) = link.filter(|link| self.is_usable(link, LinkPurpose::Authorization))
        else {
            return Ok(None);
        };
        let data: AuthorizationData = serde_json::from_str(&link.data).unwrap_or_default();
        let CodeRequest { client_id: own_client, redirect_uri: own_uri, challenge } = data.request;
        let fits = random::constant_time_eq(&challenge, &pkce_challenge(verifier))
            && own_uri == redirect_uri
            && own_client == client_id;
        if !fits {
            // A code that somebody tried with a wrong verifier may be known to others.
            self.store.take_link(&link.hash, link.purpose).await?;
            return Ok(None);
        }
        let approval = SignInApproval { owner_id: data.owner_id, name: data.name };
        match self.redeem(&link, &data.asking, &approval).await {
            Ok(granted) => Ok(Some(granted)),
            Err(
                AdminError::NotFound(_)
                | AdminError::Forbidden(_)
                | AdminError::Invalid { .. }
                | AdminError::Conflict(_),
            ) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Uses up the link of an approved sign-in and makes its key, in one change.
    async fn redeem(
        &self,
        link: &Link,
        asking: &AskingAgent,
        approval: &SignInApproval,
    ) -> Result<TokenGrant, AdminError> {
        let mut change = self.store.begin_change().await?;
        let person = self.living_person(link.account_id.as_deref()).await?;
        let actor = Actor::Person(person.clone());
        let owner = self.sign_in_owner(&actor, &approval.owner_id).await?;
        let now = self.now();
        let ended = self.store.ended_sign_ins(owner.id(), now).await?;
        self.require_may_add_keys(&actor, &owner, ended.len()).await?;
        let draft = KeyDraft::for_calls(approval.name.clone());
        let (mut record, access) = self.new_key(&actor, &owner, draft)?;
        record.surface = Some(asking.surface.clone());
        record.expires = Some(now + ACCESS_LIFE);
        self.consume_link(&mut change, link).await?;
        let mut notes = Vec::new();
        for id in &ended {
            change.revoke_key(id, now).await?;
            change.drop_refresh_tokens_of(id).await?;
            notes.push(["key.revoke", id, "its sign-in has ended"]);
        }
        change.drop_expired_refresh_tokens(now).await?;
        change.add_key(&record).await?;
        let refresh = new_refresh_text().map_err(no_randomness)?;
        add_refresh(&mut change, &refresh, &record, now).await?;
        notes.push(["key.create", &record.id, &record.name]);
        self.commit(change, &actor, &notes).await?;
        for id in &ended {
            self.reload_key(id).await?;
        }
        self.key_changed(record);
        let email = Some(person.email.unwrap_or(person.username));
        Ok(TokenGrant {
            access_token: access,
            refresh_token: refresh,
            expires_in: ACCESS_LIFE,
            email,
        })
    }

    /// Returns the account of a person who may sign in.
    async fn living_person(&self, id: Option<&str>) -> Result<Account, AdminError> {
        let account = match id {
            Some(id) => self.store.account(id).await?,
            None => None,
        };
        account.filter(|account| !account.disabled).ok_or(AdminError::NotFound("account"))
    }

    /// Returns a link of a sign-in with that token, which is not stored yet.
    fn sign_in_link(
        &self,
        purpose: LinkPurpose,
        token: &str,
        account_id: Option<&str>,
        data: &impl Serialize,
    ) -> Result<Link, AdminError> {
        let now = self.now();
        Ok(Link {
            hash: random::digest(token),
            purpose,
            account_id: account_id.map(str::to_owned),
            data: json_text(data)?,
            created: now,
            expires: now + DEVICE_CODE_LIFE,
        })
    }

    /// Makes the record of a key and its text. Nothing is stored.
    fn new_key(
        &self,
        actor: &Actor,
        owner: &KeyOwner,
        draft: KeyDraft,
    ) -> Result<(KeyRecord, String), AdminError> {
        let token = NewKeyToken::generate(KeyScope::Call).map_err(no_randomness)?;
        let hash = hash_token(self.keys.pepper(), &token.text);
        Ok((draft.into_record(actor, owner, token.id, hash, self.now()), token.text))
    }
}

fn require_name(name: &str) -> Result<(), AdminError> {
    if name.trim().is_empty() || name.len() > MAX_NAME_BYTES {
        return Err(AdminError::invalid("name", "must have 1 to 200 bytes"));
    }
    crate::names::require_visible("name", name)
}

fn json_text(data: &impl Serialize) -> Result<String, AdminError> {
    serde_json::to_string(data).map_err(|error| AdminError::Internal(error.to_string()))
}
