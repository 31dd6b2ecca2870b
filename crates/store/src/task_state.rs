//! States of a task and of the notification of its end.

/// The state of a task. It only moves forward, and the last three are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskState {
    /// It waits for a node.
    Pending,
    /// A node works on it, or will try again after a failure.
    Processing,
    /// It succeeded.
    Completed,
    /// It failed.
    Failed,
    /// Its owner cancelled it.
    Cancelled,
}

impl TaskState {
    /// Every state.
    pub const ALL: [Self; 5] =
        [Self::Pending, Self::Processing, Self::Completed, Self::Failed, Self::Cancelled];

    /// The word in the database and on the wire.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Processing => "processing",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns the state with that word.
    pub fn by_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }

    /// Returns true if the state is final.
    pub const fn is_over(self) -> bool {
        match self {
            Self::Pending | Self::Processing => false,
            Self::Completed | Self::Failed | Self::Cancelled => true,
        }
    }
}

/// The state of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryState {
    /// It is not delivered yet.
    Pending,
    /// It is delivered.
    Delivered,
    /// All attempts have failed.
    Failed,
}

impl DeliveryState {
    /// The word in the database and on the wire.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
        }
    }

    /// Returns the state with that word.
    pub(crate) fn by_word(word: &str) -> Option<Self> {
        [Self::Pending, Self::Delivered, Self::Failed].into_iter().find(|told| told.word() == word)
    }
}
