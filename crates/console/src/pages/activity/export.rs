//! The selected calls as a file.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use canon::Micros;
use futures_util::stream;
use http::header;
use ledger::LedgerEntry;
use store::{EntryFilter, Store, StoreError};

use super::names::GroupNames;
use super::selection::ActivitySelection;
use crate::csv::csv_line;
use crate::form::QueryFields;
use crate::page_error::PageError;
use crate::session::SignedInUser;
use crate::state::ConsoleState;
use crate::viewer_time::ViewerZone;

const EXPORT_BATCH_ROWS: u32 = 1_000;

/// `GET /console/activity.csv`: streamed in batches.
pub(crate) async fn csv(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    let hours_from = state.store.usage_hours_from().await?;
    let view = ActivitySelection::parse(&query, &user, state.now(), hours_from)?;
    let filter = view.entry_filter();
    let (store, names) = (state.store.clone(), GroupNames::default());
    let export = CallExport { store, filter, names, position: ExportPosition::Header };
    let rows = stream::try_unfold(export, |mut export| async move {
        let piece = export.next_chunk().await?;
        Ok::<_, std::io::Error>(piece.map(|piece| (piece, export)))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"calls.csv\""),
    ];
    Ok((headers, Body::from_stream(rows)).into_response())
}

/// Position of an export.
enum ExportPosition {
    Header,
    Rows(Option<(Micros, String)>),
    End,
}

struct CallExport {
    store: Store,
    filter: EntryFilter,
    names: GroupNames,
    position: ExportPosition,
}

impl CallExport {
    async fn next_chunk(&mut self) -> Result<Option<Bytes>, std::io::Error> {
        let after = match &self.position {
            ExportPosition::Header => {
                self.position = ExportPosition::Rows(None);
                return Ok(Some(Bytes::from_static(CSV_HEADER.as_bytes())));
            }
            ExportPosition::Rows(after) => after.clone(),
            ExportPosition::End => return Ok(None),
        };
        // Aborts the transfer on purpose: a truncated file must not look complete.
        let calls = self.read(after).await.map_err(|error| {
            tracing::error!("an export of calls failed: {error}");
            std::io::Error::other("the calls could not be read")
        })?;
        self.position = match calls.last() {
            Some(last) if calls.len() as u32 == EXPORT_BATCH_ROWS => {
                ExportPosition::Rows(Some((last.ended, last.request_id.to_string())))
            }
            Some(_) | None => ExportPosition::End,
        };
        let text: String = calls.iter().map(|call| csv_row(call, &self.names)).collect();
        Ok(Some(Bytes::from(text)))
    }

    /// Reads the next calls, and the names of their keys.
    async fn read(
        &mut self,
        after: Option<(Micros, String)>,
    ) -> Result<Vec<LedgerEntry>, StoreError> {
        let calls = self.store.export_of(&self.filter, after, EXPORT_BATCH_ROWS).await?;
        for call in &calls {
            self.names.add_key(&self.store, &call.key_id).await?;
        }
        Ok(calls)
    }
}

/// Writes the tags as an object, which is read back whatever is in them.
fn tags_json(call: &LedgerEntry) -> String {
    serde_json::to_string(&call.tags).unwrap_or_default()
}

const CSV_HEADER: &str = "request_id,ended,key,key_id,model,lane,format,status,outcome,streamed,\
    input_tokens,cached_tokens,output_tokens,thinking_tokens,estimated,cost_usd,first_byte_ms,took_ms,\
    error_code,error_message,began,session,account_id,end_user,tags\r\n";

fn csv_row(call: &LedgerEntry, names: &GroupNames) -> String {
    let error = call.error.as_deref();
    let fields = [
        call.request_id.to_string(),
        ViewerZone::UTC.timestamp(call.ended),
        names.key(&call.key_id).to_owned(),
        call.key_id.to_string(),
        call.model.to_string(),
        call.lane.to_string(),
        call.dialect.to_string(),
        call.status.to_string(),
        call.outcome.word().to_owned(),
        call.stream.to_string(),
        call.usage.input.to_string(),
        call.usage.cache_read.to_string(),
        call.usage.output.to_string(),
        call.usage.thinking.to_string(),
        call.estimated.to_string(),
        call.cost.to_string(),
        call.first_byte_us.map(|wait| wait.as_millis().to_string()).unwrap_or_default(),
        (call.ended - call.started).as_millis().to_string(),
        error.map_or_else(String::new, |error| error.code.clone()),
        error.map_or_else(String::new, |error| error.message.clone()),
        ViewerZone::UTC.timestamp(call.started),
        call.session.to_string(),
        call.account_id.to_string(),
        call.end_user.to_string(),
        if call.tags.is_empty() { String::new() } else { tags_json(call) },
    ];
    csv_line(fields)
}
