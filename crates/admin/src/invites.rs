//! Invitations: links with which a person creates an account.

use store::{AccountRole, LinkPurpose, TeamRole};

use crate::account_admin::AccountAdmin;
use crate::actor::Actor;
use crate::error::AdminError;
use crate::one_time_link::{LINK_LIFETIMES, LinkData, link_data, link_path};
use crate::rights::{TeamAction, require_may_grant};
use crate::{names, random};

/// Maximum number of open invitations.
const MAX_INVITES: usize = 100;

/// An invitation to be created.
#[derive(Clone, Debug)]
pub struct InviteDraft {
    /// Address of the invited person, and of the account.
    pub email: Option<String>,
    /// Role of the account.
    pub role: AccountRole,
    /// Team the account joins, and its role there.
    pub team: Option<(String, TeamRole)>,
}

impl AccountAdmin {
    /// Creates an invitation and returns the path of its link.
    pub async fn invite(&self, actor: &Actor, draft: InviteDraft) -> Result<String, AdminError> {
        let InviteDraft { email, role, team } = draft;
        require_may_grant(actor, role)?;
        let mut change = self.store.begin_change().await?;
        if let Some(email) = &email {
            if !names::is_email_address(email) {
                let message = "This does not look like one e-mail address.";
                return Err(AdminError::invalid("email", message));
            }
            if self.store.account_by_login(email).await?.is_some() {
                return Err(AdminError::invalid("email", "This address has an account already."));
            }
        }
        if let Some((team_id, _)) = &team {
            self.team_for(actor, team_id, TeamAction::ManageMembers).await?;
        }
        self.sweep_links().await;
        if self.store.links_for(LinkPurpose::Invite).await?.len() >= MAX_INVITES {
            let message = format!("There may be {MAX_INVITES} open invitations.");
            return Err(AdminError::invalid("email", message));
        }
        let data = LinkData {
            email: email.clone(),
            role: Some(role.word().to_owned()),
            team: team.map(|(team_id, role)| (team_id, role.word().to_owned())),
            maker: actor.account().map(|account| account.id.clone()),
            ..LinkData::default()
        };
        let (link, token) =
            self.prepare_link(LinkPurpose::Invite, None, &data, LINK_LIFETIMES.invite)?;
        change.add_link(&link).await?;
        let note = ["account.invite", email.as_deref().unwrap_or_default(), role.word()];
        self.commit(change, actor, &[note]).await?;
        Ok(link_path(&token))
    }

    /// Takes an invitation back. `id` is the digest of its link in hexadecimal digits.
    pub async fn revoke_invite(&self, actor: &Actor, id: &str) -> Result<(), AdminError> {
        actor.require_admin()?;
        let mut change = self.store.begin_change().await?;
        let invites = self.store.links_for(LinkPurpose::Invite).await?;
        let found = invites.into_iter().find(|link| random::hex(&link.hash) == id);
        let link = found.ok_or(AdminError::NotFound("invitation"))?;
        let data = link_data(&link);
        match data.role.as_deref().and_then(AccountRole::by_word) {
            Some(role) => require_may_grant(actor, role)?,
            None => return Err(AdminError::forbidden("you may not grant this role")),
        }
        change.take_link(&link.hash, LinkPurpose::Invite).await?;
        let email = data.email.unwrap_or_default();
        Ok(self.commit(change, actor, &[["account.uninvite", &email, ""]]).await?)
    }
}
