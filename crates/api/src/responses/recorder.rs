//! Stores an answer on its way to the caller, whole or streamed.
use transport::ServerReply;

use access::keys::ApiKey;
use canon::{ApiError, Micros, SharedText};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::sync::Arc;
use store::StoredResponse;

use super::conversation::Conversation;
use crate::connection_answers::ConnectionAnswers;
use crate::observe::observe_response;
use crate::state::ApiState;
use relay::Call;

/// Stores the response object of one call.
pub(super) struct ResponseRecorder {
    state: Arc<ApiState>,
    key: Arc<ApiKey>,
    /// The whole conversation as JSON, written before the answer arrives.
    input: String,
    /// The session of the call, which the calls that continue it have too.
    session: Box<dyn Fn() -> Option<SharedText> + Send + Sync>,
    /// Memory of the caller's WebSocket for an answer that is not stored.
    unstored: Option<Arc<ConnectionAnswers>>,
}

impl ResponseRecorder {
    pub(super) async fn new(
        state: Arc<ApiState>,
        call: &Call,
        conversation: Conversation,
        answers: Option<Arc<ConnectionAnswers>>,
    ) -> Self {
        let unstored = answers.filter(|_| !conversation.store);
        let key = Arc::clone(&call.key);
        let write = || Value::from(conversation.items).to_string();
        let input = call.work_permit().await.run(write).await;
        Self { state, key, input, session: Box::new(call.session_reader()), unstored }
    }

    /// Stores a response object.
    pub(super) fn store(&self, reply: &str) {
        store::run_in_place(self.input.len() + reply.len(), || self.store_now(reply));
    }

    fn store_now(&self, reply: &str) {
        #[derive(Deserialize)]
        struct ReplyId {
            id: String,
        }
        let Ok(ReplyId { id }) = dialects::json::read(reply) else { return };
        let now = self.state.clock().now();
        let retention = Micros::from(self.state.config().answer_retention);
        let input = &self.input;
        let request = match (self.session)() {
            Some(session) => {
                format!("{{\"session\":{},\"input\":{input}}}", Value::from(session.as_str()))
            }
            None => format!("{{\"input\":{input}}}"),
        };
        let answer = StoredResponse {
            id,
            account_id: self.key.record.account_id.clone(),
            key_id: Some(self.key.record.id.clone()),
            request,
            reply: reply.to_owned(),
            created: now,
            expires: now + retention,
        };
        match &self.unstored {
            Some(answers) => answers.put(answer),
            None => self.state.stored_answers.put(answer),
        }
    }
}

/// Stores the answer before the caller receives its last byte.
pub(super) async fn record_response(
    recorder: ResponseRecorder,
    response: ServerReply,
) -> Result<ServerReply, ApiError> {
    let whole = |recorder: &mut ResponseRecorder, body: &[u8]| {
        recorder.store(&String::from_utf8_lossy(body))
    };
    let state = Arc::clone(&recorder.state);
    let work = &state.engine.heavy_work;
    observe_response(work, response, recorder, whole, |recorder, frame| {
        if let Some(reply) = final_response(&frame.data) {
            recorder.store(reply);
        }
    })
    .await
}

/// Returns the response object of an event that ends a stream.
pub(super) fn final_response(data: &[u8]) -> Option<&str> {
    #[derive(Deserialize)]
    struct FinalEvent<'a> {
        #[serde(borrow)]
        r#type: std::borrow::Cow<'a, str>,
        #[serde(borrow, default)]
        response: Option<&'a RawValue>,
    }
    // Most events are text deltas. This cheap check skips parsing them.
    let start = data.get(..64).unwrap_or(data);
    memchr::memmem::find(start, b"\"response.")?;
    let event: FinalEvent<'_> = dialects::json::read_bytes(data).ok()?;
    match &*event.r#type {
        "response.completed" | "response.incomplete" | "response.failed" => {
            event.response.map(RawValue::get)
        }
        _ => None,
    }
}
