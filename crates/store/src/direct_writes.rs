//! Writes outside a change of administration: steps of a sign-in, and states that tests set up.
//!
//! Administration itself commits a change together with its lines of the audit log. `cargo xtask
//! tidy` reports a product file that changes accounts, teams, keys or settings with these methods.

use canon::Micros;

use crate::{
    Account, AccountRole, AccountTerms, ConfigChange, Factor, FactorKind, Identity, KeyRecord,
    Link, LinkPurpose, MemberChange, PersonChange, RateLimits, RefreshToken, Store, StoreError,
    Team, TeamRole,
};

/// Makes methods of [`crate::AuditedChange`] methods of the store, each a transaction of its own.
macro_rules! direct_writes {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        impl Store {
            $(
                /// Does the same as the method of [`crate::AuditedChange`], in a transaction of its
                /// own and without a line in the audit log.
                pub async fn $name(&self, $($argument: $type),*) -> Result<$result, StoreError> {
                    let mut change = self.begin_unlocked().await?;
                    let done = change.$name($($argument),*).await?;
                    change.commit_unaudited().await?;
                    Ok(done)
                }
            )*
        }
    };
}

direct_writes! {
    add_account_with_terms(account: &Account, terms: &AccountTerms) -> ();
    add_account_with_identity(account: &Account, identity: &Identity, terms: &AccountTerms) -> ();
    rename_account(id: &str, username: &str, email: Option<&str>, at: Micros) -> bool;
    set_password(id: &str, hash: Option<&str>, at: Micros) -> bool;
    set_disabled(id: &str, disabled: bool, at: Micros) -> bool;
    change_person(id: &str, role: Option<AccountRole>, disabled: Option<bool>, at: Micros) -> PersonChange;
    set_account_terms(account_id: &str, terms: &AccountTerms) -> ();
    set_account_limits(account_id: &str, limits: RateLimits) -> ();
    add_team_with_terms(team: &Team, terms: &AccountTerms) -> ();
    set_member(team_id: &str, account_id: &str, role: Option<TeamRole>, by_hand: bool, at: Micros) -> MemberChange;
    add_key(key: &KeyRecord) -> ();
    update_key(key: &KeyRecord) -> bool;
    rotate_key(id: &str, new_hash: &[u8], old_until: Micros, at: Micros) -> bool;
    revoke_key(id: &str, at: Micros) -> bool;
    add_factor(factor: &Factor) -> ();
    replace_factors(account_id: &str, kind: FactorKind, factors: &[Factor]) -> ();
    drop_factor(account_id: &str, id: &str) -> bool;
    add_identity(identity: &Identity) -> ();
    drop_identity(account_id: &str, issuer: &str, subject: &str) -> bool;
    add_link(link: &Link) -> ();
    take_link(hash: &[u8], purpose: LinkPurpose) -> Option<Link>;
    drop_links_of(account_id: &str, purpose: LinkPurpose) -> u64;
    add_refresh_token(token: &RefreshToken) -> ();
    use_refresh_token(hash: &[u8], at: Micros, network: &str) -> bool;
    drop_refresh_tokens_of(key_id: &str) -> u64;
    drop_expired_refresh_tokens(now: Micros) -> u64;
    drop_sessions_of(account_id: &str) -> u64;
    put_setting(name: &str, value: &str) -> ();
    take_setting(name: &str) -> Option<String>;
    configure(seen: i64, changes: &[ConfigChange]) -> bool;
}

impl Store {
    /// Adds an account without spending limits.
    pub async fn add_account(&self, account: &Account) -> Result<(), StoreError> {
        self.add_account_with_terms(account, &AccountTerms::default()).await
    }

    /// Adds a team without spending limits.
    pub async fn add_team(&self, team: &Team) -> Result<(), StoreError> {
        self.add_team_with_terms(team, &AccountTerms::default()).await
    }
}
