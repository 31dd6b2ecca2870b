//! Facts of each node that its peers compare with their own.

use canon::Micros;
use std::collections::BTreeMap;

use crate::db::{on_reader, on_writer};
use crate::row::row;
use crate::{Store, StoreError};

const PUT: &str = "UPDATE nodes SET facts = $2 WHERE id = $1 AND facts <> $2";
const ALL: &str = "SELECT id, facts, (SELECT now FROM store_clock) - seen AS silence FROM nodes \
    WHERE facts <> '' ORDER BY id";

row! {
    struct FactsRow {
        id: String,
        facts: String,
        silence: Micros,
    }
}

/// Facts of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// Name of the node.
    pub id: String,
    /// Time since its last heartbeat.
    pub silence: Micros,
    /// Digest of each section of its configuration, by the name of the section.
    pub sections: BTreeMap<String, String>,
}

impl Store {
    /// Stores the digests of a node's configuration. A node that the store has forgotten tells them
    /// again later.
    pub async fn put_node_facts(
        &self,
        id: &str,
        sections: &BTreeMap<String, String>,
    ) -> Result<(), StoreError> {
        let facts = serde_json::to_string(sections)
            .map_err(|e| StoreError::Other(format!("facts of a node cannot be encoded: {e}")))?;
        on_writer!(&self.db, pool => {
            sqlx::query(PUT).bind(id).bind(&facts).execute(pool).await?;
        });
        Ok(())
    }

    /// Returns the facts of every node that told them. Facts that another version wrote in another way
    /// are left out.
    pub async fn node_facts(&self) -> Result<Vec<NodeFacts>, StoreError> {
        let rows: Vec<FactsRow> =
            on_reader!(&self.db, pool => sqlx::query_as(ALL).fetch_all(pool).await?);
        let read = |row: FactsRow| {
            let sections = serde_json::from_str(&row.facts).ok()?;
            Some(NodeFacts { id: row.id, silence: row.silence, sections })
        };
        Ok(rows.into_iter().filter_map(read).collect())
    }
}
