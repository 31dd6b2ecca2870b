//! Turns: work that one process at a time does. The holder and the end of a turn are a setting.

use std::time::{Duration, Instant};

use canon::Micros;

use crate::db::{clean, on_writer};
use crate::{Store, StoreError};

/// Time for which a process has the turn without a renewal. The next one waits so long for one that was killed.
pub const TURN_TIME: Micros = Micros::from_secs(30);
const RENEWALS_PER_TURN: u64 = 3;
/// Time to wait for a turn, which is longer than that of a killed process, and the pause between two looks.
const TURN_WAIT: Duration = Duration::from_secs(40);
const TURN_LOOK_PAUSE: Duration = Duration::from_millis(250);
const MOVE_TURN: &str = "UPDATE settings SET value = $3 WHERE name = $1 AND value = $2";

/// Work that one process at a time does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterTurn {
    /// The deletion of old rows: archives and erasures.
    Retention,
    /// Alerts: finding and telling them.
    Alerts,
}

impl ClusterTurn {
    const fn setting(self) -> &'static str {
        match self {
            Self::Retention => "retention_turn",
            Self::Alerts => "alerts_turn",
        }
    }

    /// Text for work that lost its turn.
    const fn lost(self) -> &'static str {
        match self {
            Self::Retention => "another process has begun to archive or erase",
            Self::Alerts => "another process has begun to tell alerts",
        }
    }
}

impl Store {
    /// Takes a turn, or prolongs it. Returns false if another process has it. The clock is that of the database.
    pub async fn take_turn(
        &self,
        turn: ClusterTurn,
        process: &str,
        lasts: Micros,
    ) -> Result<bool, StoreError> {
        let now = self.now().await?;
        let seen = self.setting_or(turn.setting(), "").await?;
        if let Some((until, holder)) = seen.split_once(' ') {
            let until = Micros::new(until.parse().unwrap_or_default());
            if until > now && holder != process {
                return Ok(false);
            }
        }
        let own = format!("{} {process}", now.saturating_add(lasts).get());
        self.move_turn(turn, &seen, &own).await
    }

    /// Gives the turn back.
    pub async fn end_turn(&self, turn: ClusterTurn, process: &str) -> Result<(), StoreError> {
        let seen = self.setting_or(turn.setting(), "").await?;
        if seen.split_once(' ').is_some_and(|(_, holder)| holder == process) {
            self.move_turn(turn, &seen, "").await?;
        }
        Ok(())
    }

    /// Waits for the turn as long as one of a process that was killed may last. Returns false if a process that
    /// runs has it.
    pub async fn wait_for_turn(
        &self,
        turn: ClusterTurn,
        process: &str,
    ) -> Result<bool, StoreError> {
        let begun = Instant::now();
        while !self.take_turn(turn, process, TURN_TIME).await? {
            if begun.elapsed() > TURN_WAIT {
                return Ok(false);
            }
            tokio::time::sleep(TURN_LOOK_PAUSE).await;
        }
        Ok(true)
    }

    /// Does work in the turn that this process has taken, prolongs the turn meanwhile, and gives it back. The work
    /// is stopped if another process has got the turn.
    pub async fn in_turn<T>(
        &self,
        turn: ClusterTurn,
        process: &str,
        lasts: Micros,
        work: impl Future<Output = T>,
    ) -> Result<T, StoreError> {
        let pause = Duration::from_micros(lasts.get().unsigned_abs() / RENEWALS_PER_TURN);
        let renewing = async {
            loop {
                tokio::time::sleep(pause).await;
                match self.take_turn(turn, process, lasts).await {
                    Ok(true) => {}
                    Ok(false) => return,
                    // The work needs the database too, and reports it.
                    Err(error) => {
                        tracing::debug!("a turn was not prolonged: {error}")
                    }
                }
            }
        };
        // Both run at once: the work may hold the connection that the renewal waits for.
        let done = tokio::select! {
            done = work => done,
            () = renewing => {
                return Err(StoreError::Other(turn.lost().to_owned()));
            }
        };
        self.end_turn(turn, process).await?;
        Ok(done)
    }

    async fn move_turn(&self, turn: ClusterTurn, from: &str, to: &str) -> Result<bool, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            let moved = sqlx::query(MOVE_TURN).bind(turn.setting()).bind(clean(from)).bind(clean(to));
            moved.execute(pool).await?.rows_affected()
        }) > 0)
    }
}
