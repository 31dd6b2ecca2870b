//! One error for the whole life of a call.

use std::borrow::Cow;
use std::time::Duration;

/// What went wrong, in the few kinds a caller can act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trouble {
    /// The request breaks a rule: the caller must change it.
    Invalid,
    /// The prompt does not fit the model's window.
    TooLong,
    /// No key, or not a good one.
    NoKey,
    /// The key may not do this.
    Forbidden,
    /// No such path.
    NoPath,
    /// The path exists, the method does not.
    NoMethod,
    /// No such model for this surface.
    NoModel,
    /// No such thing: a response, a receipt, a task.
    NotFound,
    /// It was there, its time is over.
    Gone,
    /// The same request is already running.
    Conflict,
    /// It was changed since the caller looked at it.
    Stale,
    /// More bytes than allowed.
    TooLarge,
    /// A content type that is not served here.
    MediaType,
    /// More headers, or longer ones, than allowed.
    HeadTooLarge,
    /// The caller expects of us what we do not do.
    Expectation,
    /// A protocol that is not served here.
    Upgrade,
    /// The caller took too long to send its request.
    SlowCaller,
    /// Too many calls: wait and retry.
    RateLimit,
    /// The money is used up: a retry cannot help.
    Quota,
    /// The provider refused on grounds of policy.
    Policy,
    /// Our own defect. A count of these is a count of bugs.
    Internal,
    /// No lane could serve the call.
    Unavailable,
    /// Too much work at this moment.
    Overload,
    /// The answer took too long.
    Timeout,
    /// The answer broke off after it had begun.
    Interrupted,
}

/// Whose trouble it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blame {
    /// The caller's request.
    Caller,
    /// This gateway.
    Gateway,
    /// The provider behind it.
    Upstream,
}

/// How far a call to a provider got before it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// Nothing of it left, so nothing can have been done there.
    Nothing,
    /// Nothing but a connection that the provider had closed meanwhile.
    Stale,
    /// The provider sent it back and promises that nothing was done.
    Undone,
    /// The provider may have begun to work; what became of it is unknown.
    Sent,
    /// The provider answered with this status.
    Answered(u16),
}

/// An error: what it is, whose it is, whether to try again, and two sentences, one for the caller
/// and one for our log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault(Box<Inner>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Inner {
    trouble: Trouble,
    blame: Blame,
    say: Cow<'static, str>,
    note: Option<String>,
    param: Option<String>,
    code: Option<Cow<'static, str>>,
    retry_after: Option<Duration>,
    may_retry: bool,
    reach: Option<Reach>,
}

impl Fault {
    /// A fault with what is said to the caller.
    pub fn new(trouble: Trouble, say: impl Into<Cow<'static, str>>) -> Self {
        let (blame, may_retry) = match trouble {
            Trouble::Invalid
            | Trouble::TooLong
            | Trouble::NoKey
            | Trouble::Forbidden
            | Trouble::NoPath
            | Trouble::NoMethod
            | Trouble::NoModel
            | Trouble::NotFound
            | Trouble::Gone
            | Trouble::Stale
            | Trouble::TooLarge
            | Trouble::MediaType
            | Trouble::HeadTooLarge
            | Trouble::Expectation
            | Trouble::Upgrade
            | Trouble::SlowCaller
            | Trouble::Policy
            | Trouble::Quota => (Blame::Caller, false),
            Trouble::Conflict | Trouble::RateLimit => (Blame::Caller, true),
            Trouble::Internal | Trouble::Overload => (Blame::Gateway, true),
            Trouble::Unavailable | Trouble::Timeout | Trouble::Interrupted => {
                (Blame::Upstream, true)
            }
        };
        Self(Box::new(Inner {
            trouble,
            blame,
            say: say.into(),
            note: None,
            param: None,
            code: None,
            retry_after: None,
            may_retry,
            reach: None,
        }))
    }

    /// A broken rule of the request, naming the JSON path of the field.
    pub fn invalid(path: impl Into<String>, say: impl Into<Cow<'static, str>>) -> Self {
        let path = path.into();
        let mut fault = Self::new(Trouble::Invalid, say);
        fault.0.param = (!path.is_empty()).then_some(path);
        fault
    }

    /// Our own defect; the caller learns nothing of its inside.
    pub fn internal(note: impl Into<String>) -> Self {
        Self::new(Trouble::Internal, "the gateway hit a defect of its own; please retry").note(note)
    }

    /// What our log is told besides.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.0.note = Some(note.into());
        self
    }

    /// The field that is to blame.
    #[must_use]
    pub fn param(mut self, path: impl Into<String>) -> Self {
        self.0.param = Some(path.into());
        self
    }

    /// A finer word than the trouble's own, for formats that have codes.
    #[must_use]
    pub fn code(mut self, code: impl Into<Cow<'static, str>>) -> Self {
        self.0.code = Some(code.into());
        self
    }

    /// When a retry makes sense.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.0.retry_after = Some(wait);
        self
    }

    /// Whose trouble it is, when it is not the usual party's.
    #[must_use]
    pub fn blame(mut self, blame: Blame) -> Self {
        self.0.blame = blame;
        self
    }

    /// A retry cannot help.
    #[must_use]
    pub fn never_retry(mut self) -> Self {
        self.0.may_retry = false;
        self
    }

    /// How far the call to a provider got.
    #[must_use]
    pub fn reach(mut self, reach: Reach) -> Self {
        self.0.reach = Some(reach);
        self
    }

    /// The kind of trouble.
    pub fn trouble(&self) -> Trouble {
        self.0.trouble
    }

    /// Whose trouble it is.
    pub fn blamed(&self) -> Blame {
        self.0.blame
    }

    /// The sentence for the caller.
    pub fn say(&self) -> &str {
        &self.0.say
    }

    /// The sentence for our log.
    pub fn noted(&self) -> Option<&str> {
        self.0.note.as_deref()
    }

    /// The JSON path of the field to blame.
    pub fn path(&self) -> Option<&str> {
        self.0.param.as_deref()
    }

    /// The finer word.
    pub fn detail(&self) -> Option<&str> {
        self.0.code.as_deref()
    }

    /// How long to wait before a retry.
    pub fn wait(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// How far the call to a provider got, where that is known.
    pub fn reached(&self) -> Option<Reach> {
        self.0.reach
    }

    /// Whether a retry may help.
    pub fn may_retry(&self) -> bool {
        self.0.may_retry
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0.say)?;
        match &self.0.param {
            Some(path) => write!(f, " ({path})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Fault {}
