//! Sign-up: accounts that people create for themselves, with a link or through an identity
//! provider. The right to do so is the link, or the sign-up mode.

use canon::Micros;
use config::IdentityProvider;
use store::{Account, AccountRole, AccountTerms, Identity, Link, LinkPurpose, Store, StoreError};

use crate::account_admin::AccountAdmin;
use crate::actor::Actor;
use crate::error::AdminError;
use crate::one_time_link::{LINK_LIFETIMES, LinkData, link_data};
use crate::password::HashedPassword;
use crate::rights::may_grant_role;
use crate::{names, random};

/// Names of the settings.
const MODE_SETTING: &str = "signup";
const ROLE_SETTING: &str = "signup_role";
const CAP_SETTING: &str = "signup_cap_usd";
/// Attempts to find a free username for a person of an identity provider.
pub(crate) const MAX_NAME_ATTEMPTS: u32 = 20;

/// Rule for the creation of accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignUpMode {
    /// Anyone with an e-mail address.
    Open,
    /// Invited people only.
    Invited,
    /// No new accounts.
    Closed,
}

impl SignUpMode {
    /// All modes, in display order.
    pub const ALL: [Self; 3] = [Self::Open, Self::Invited, Self::Closed];

    /// Word of the setting.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Invited => "invited",
            Self::Closed => "closed",
        }
    }

    /// Label of the choice.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Open => "Open: anyone with an e-mail address",
            Self::Invited => "By invitation only",
            Self::Closed => "Closed: not even invitations work",
        }
    }

    /// Parses the word of the setting.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == word)
    }

    /// Loads the mode; by invitation if none is set.
    pub async fn load(store: &Store) -> Result<Self, StoreError> {
        let word = store.setting(MODE_SETTING).await?;
        Ok(word.as_deref().and_then(Self::parse).unwrap_or(Self::Invited))
    }
}

/// Claims about a person, from the ID token and the userinfo endpoint of an identity provider.
pub struct IdentityClaims {
    /// Issuer of the ID token.
    pub issuer: String,
    /// Id of the person at the issuer.
    pub subject: String,
    /// E-mail address.
    pub email: Option<String>,
    /// True if the provider has verified the address.
    pub email_verified: bool,
    /// Name of the person.
    pub name: Option<String>,
    /// Groups of the person, of the claim that the provider's mapping names.
    pub groups: Vec<String>,
    /// Id of the person in the provider's directory (`oid`), which Microsoft Entra ID has beside the
    /// subject.
    pub object_id: Option<String>,
}

impl IdentityClaims {
    /// The link between this person and an account, as it is stored.
    pub(crate) fn identity_of(&self, account_id: &str, now: Micros) -> Identity {
        let label = self.email.as_ref().or(self.name.as_ref()).unwrap_or(&self.subject);
        Identity {
            issuer: self.issuer.clone(),
            subject: self.subject.clone(),
            account_id: account_id.to_owned(),
            label: label.chars().take(254).collect(),
            object_id: self.object_id.clone(),
            created: now,
        }
    }

    /// Username to begin with: the name or the local part of the address, without characters that
    /// usernames cannot have.
    fn wished_username(&self, email: Option<&str>) -> String {
        names::plain_username(self.name.as_deref().or(email).unwrap_or("user"))
    }
}

/// Result of a sign-up through an identity provider.
pub enum IdentitySignUp {
    /// The new account.
    Created(Account),
    /// Another account has the address.
    AddressTaken,
    /// The sign-up mode admits invited people only.
    NotInvited,
    /// The provider has not verified the address.
    AddressNotVerified,
}

impl AccountAdmin {
    /// Returns the role of an account created with this link, if the sign-up mode allows it. An
    /// invitation gives only what its creator may still give.
    pub async fn sign_up_role(&self, link: &Link) -> Result<AccountRole, AdminError> {
        let mode = SignUpMode::load(&self.store).await?;
        let data = link_data(link);
        let invited = match link.purpose {
            LinkPurpose::SignUp => false,
            LinkPurpose::Invite => true,
            LinkPurpose::Reset
            | LinkPurpose::Email
            | LinkPurpose::Second
            | LinkPurpose::Challenge
            | LinkPurpose::Return
            | LinkPurpose::Proof
            | LinkPurpose::Device
            | LinkPurpose::UserCode
            | LinkPurpose::Authorization => return Err(AdminError::NotFound("link")),
        };
        if !invited {
            return match mode {
                SignUpMode::Open => Ok(self.sign_up_default_role().await?),
                SignUpMode::Invited | SignUpMode::Closed => Err(AdminError::NotFound("link")),
            };
        }
        let role = data.role.as_deref().and_then(AccountRole::by_word);
        let role = role.filter(|_| mode != SignUpMode::Closed);
        let role = role.ok_or(AdminError::NotFound("link"))?;
        let Some(inviter) = data.maker else { return Ok(role) };
        let inviter = self.store.account(&inviter).await?.filter(|inviter| !inviter.disabled);
        let gives = inviter.is_some_and(|inviter| may_grant_role(inviter.role, role));
        if gives { Ok(role) } else { Err(AdminError::NotFound("link")) }
    }

    /// Creates a link with which the holder of an address creates an account, and returns its
    /// path. The caller sends it to that address.
    pub async fn mail_sign_up_link(&self, email: &str) -> Result<String, AdminError> {
        match SignUpMode::load(&self.store).await? {
            SignUpMode::Open => {}
            SignUpMode::Invited | SignUpMode::Closed => {
                return Err(AdminError::forbidden("accounts are made by invitation here"));
            }
        }
        if !names::is_email_address(email) {
            let message = "This does not look like an e-mail address.";
            return Err(AdminError::invalid("email", message));
        }
        let data = LinkData { email: Some(email.to_owned()), ..LinkData::default() };
        let link = self.prepare_link(LinkPurpose::SignUp, None, &data, LINK_LIFETIMES.sign_up)?;
        self.store_mailed_link(link).await
    }

    /// Creates an account with a link, which is used up. The account joins the team of an
    /// invitation.
    pub async fn sign_up(
        &self,
        link: &Link,
        username: &str,
        password: &HashedPassword,
    ) -> Result<Account, AdminError> {
        let mut change = self.store.begin_change().await?;
        let role = self.sign_up_role(link).await?;
        if let Some(why) = names::new_username_error(username) {
            return Err(AdminError::invalid("username", why));
        }
        if self.store.account_by_login(username).await?.is_some() {
            let message = "This username is taken. Choose another.";
            return Err(AdminError::invalid("username", message));
        }
        let data = link_data(link);
        let terms = if link.purpose == LinkPurpose::SignUp {
            self.sign_up_default_terms().await?
        } else {
            AccountTerms::default()
        };
        let account = self.new_account(username.to_owned(), data.email, role, Some(password));
        let inviter = match data.maker {
            Some(id) => self.store.account(&id).await?,
            None => None,
        };
        let inviter = Actor::Person(inviter.unwrap_or_else(|| account.clone()));
        // After a failure the change is dropped, and the link keeps working.
        self.consume_link(&mut change, link).await?;
        match change.add_account_with_terms(&account, &terms).await {
            Ok(()) => {}
            Err(StoreError::Conflict(_)) => {
                let message = "This username or the address is taken.";
                return Err(AdminError::invalid("username", message));
            }
            Err(error) => return Err(error.into()),
        }
        let mut notes = vec![["account.create", &account.id, account.role.word()]];
        let joined = match &data.team {
            Some((team, word)) => self.join_invited(&mut change, team, &account.id, word).await?,
            None => None,
        };
        if let (Some((team_id, _)), Some(detail)) = (&data.team, &joined) {
            notes.push(["team.member", team_id, detail]);
        }
        self.commit(change, &inviter, &notes).await?;
        Ok(account)
    }

    /// Creates an account for a person of an identity provider, under a free username.
    pub async fn sign_up_with_identity(
        &self,
        provider: &IdentityProvider,
        person: &IdentityClaims,
    ) -> Result<IdentitySignUp, AdminError> {
        if let Some(email) = &person.email
            && self.store.account_by_login(email).await?.is_some()
        {
            return Ok(IdentitySignUp::AddressTaken);
        }
        // A group that gives a role admits its members.
        let mapped = provider.groups.as_ref().and_then(|groups| groups.role_of(&person.groups));
        let given = mapped.or(provider.default_role);
        let role = match (given, SignUpMode::load(&self.store).await?) {
            (Some(role), _) => role,
            (None, SignUpMode::Open) => self.sign_up_default_role().await?,
            (None, SignUpMode::Invited | SignUpMode::Closed) => {
                return Ok(IdentitySignUp::NotInvited);
            }
        };
        if person.email.is_some() && !person.email_verified {
            return Ok(IdentitySignUp::AddressNotVerified);
        }
        let account = self.add_identity_account(provider, person, role).await?;
        Ok(IdentitySignUp::Created(account))
    }

    async fn add_identity_account(
        &self,
        provider: &IdentityProvider,
        person: &IdentityClaims,
        role: AccountRole,
    ) -> Result<Account, AdminError> {
        let email = person.email.clone().filter(|email| names::is_email_address(email));
        let base = person.wished_username(email.as_deref());
        let terms = self.sign_up_default_terms().await?;
        for attempt in 0..MAX_NAME_ATTEMPTS {
            let username = numbered_username(&base, attempt)?;
            let account = self.new_account(username, email.clone(), role, None);
            let identity = person.identity_of(&account.id, self.now());
            let mut change = self.store.begin_change().await?;
            match change.add_account_with_identity(&account, &identity, &terms).await {
                Ok(()) => {
                    let actor = Actor::Person(account.clone());
                    let note = ["account.create", &account.id, &provider.name];
                    self.commit(change, &actor, &[note]).await?;
                    return Ok(account);
                }
                Err(StoreError::Conflict("username or email")) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(AdminError::Internal(format!("no free username after {MAX_NAME_ATTEMPTS} attempts")))
    }

    /// Role of accounts created without an invitation.
    pub(crate) async fn sign_up_default_role(&self) -> Result<AccountRole, StoreError> {
        let word = self.store.setting(ROLE_SETTING).await?;
        Ok(if word.as_deref() == Some(AccountRole::Viewer.word()) {
            AccountRole::Viewer
        } else {
            AccountRole::Member
        })
    }

    /// Spending terms of accounts created without an invitation.
    pub(crate) async fn sign_up_default_terms(&self) -> Result<AccountTerms, StoreError> {
        let text = self.store.setting(CAP_SETTING).await?;
        Ok(AccountTerms { cap: text.and_then(|text| text.parse().ok()), ..AccountTerms::default() })
    }
}

/// Returns the username to try at an attempt: the wished one, and then ones with random letters.
pub(crate) fn numbered_username(base: &str, attempt: u32) -> Result<String, AdminError> {
    if attempt == 0 {
        return Ok(base.to_owned());
    }
    let token = random::random_token()
        .map_err(|_| AdminError::Internal("no random numbers are available".to_owned()))?;
    let suffix: String = token.chars().take(6).collect();
    Ok(format!("{base}-{suffix}"))
}
