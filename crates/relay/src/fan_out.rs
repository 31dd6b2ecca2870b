//! Several candidates from a lane whose format has no field for their number: the gateway sends the
//! request once for each, at the same time. One reservation covers them, and their usage is summed.

use bytes::Bytes;
use canon::{ApiError, ChatReply, into_events, scrub_for};
use dialects::{ClientToolCalls, ProviderRequest, ReplyMeter, RequestFacts};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use transport::ServerReply;

use super::Call;
use super::call_texts::text_owners;
use super::prepare::ExpectedReply;
use super::reply::{self, check_ending, complete_endings, settled_events, settled_response};
use super::route::Candidate;
use super::send::send;
use super::settle::{BoxedAccount, FinishedReply};

/// Sends the copies of a request to one lane, as many at once as the provider has places for. A
/// failed copy fails the attempt, and the account returns for the next lane. The operator absorbs
/// the cost of the others.
pub(super) async fn send_copies(
    call: &Call,
    facts: &RequestFacts,
    candidate: &Candidate,
    outgoing: ProviderRequest,
    expected: ExpectedReply,
    mut account: BoxedAccount,
) -> Result<ServerReply, (ApiError, BoxedAccount)> {
    account.set_copies(expected.copies);
    let places = account.admit_copies(candidate, expected.copies);
    let mut running = FuturesUnordered::new();
    let (mut left, mut replies) = (expected.copies, Vec::new());
    let asked = loop {
        while left > 0 && running.len() <= places.len() {
            running.push(Box::pin(ask(call, candidate, &outgoing, &expected)));
            left -= 1;
        }
        match running.next().await {
            Some(Ok(reply)) => replies.push(reply),
            Some(Err((error, unusable))) => {
                account.absorb_copies(replies.iter().map(|(_, meter)| meter), running.len());
                if let Some(meter) = &unusable {
                    account.absorb_answer(meter);
                }
                break Err(error);
            }
            None => break Ok(replies),
        }
    };
    drop(running);
    let finished = match asked {
        Ok(replies) => {
            let bytes: u64 = replies.iter().map(|(_, meter)| meter.output_bytes).sum();
            let permit = call.permit_for(usize::try_from(bytes).unwrap_or(usize::MAX)).await;
            permit.run(|| write(call, facts, expected, replies)).await
        }
        Err(error) => Err(error),
    };
    match finished {
        Ok((finished, body)) => {
            drop(places);
            account.record_reply(finished);
            Ok(match facts.stream {
                true => settled_events(body, facts.json_array, account).await,
                false => settled_response(body, account).await,
            })
        }
        Err(error) => Err((error, account)),
    }
}

/// Sends one copy and reads its reply. An error has the meter of a reply that cannot be used.
async fn ask(
    call: &Call,
    candidate: &Candidate,
    outgoing: &ProviderRequest,
    expected: &ExpectedReply,
) -> Result<(ChatReply, ReplyMeter), (ApiError, Option<Box<ReplyMeter>>)> {
    let lost = |error| (error, None);
    let answer = send(call, candidate, expected.dialect, outgoing.clone()).await.map_err(lost)?;
    let body = reply::read_json(answer, &candidate.lane, call).await.map_err(lost)?;
    let read = || {
        let owners = text_owners(call, &expected.provider);
        let read = scrub_for(&owners, || expected.dialect.read_reply(&body));
        let mut reply = read.map_err(lost)?;
        let meter = ReplyMeter::of_reply(&reply);
        complete_endings(&mut reply, expected.dialect.origin());
        match check_ending(&reply, call) {
            Ok(()) => Ok((reply, meter)),
            Err(error) => Err((error, Some(Box::new(meter)))),
        }
    };
    call.permit_for(body.len()).await.run(read).await
}

/// Joins the replies and writes them in the caller's format.
fn write(
    call: &Call,
    facts: &RequestFacts,
    expected: ExpectedReply,
    replies: Vec<(ChatReply, ReplyMeter)>,
) -> Result<(FinishedReply, Bytes), ApiError> {
    let translation = expected.translation.ok_or_else(|| {
        ApiError::internal("copies of a request are only sent for a translated reply")
    })?;
    let chat = &translation.request;
    let mut replies = replies.into_iter();
    let (mut reply, mut meter) =
        replies.next().ok_or_else(|| ApiError::internal("no copy of a request was sent"))?;
    for (other, its_meter) in replies {
        for mut candidate in other.candidates {
            candidate.index = u32::try_from(reply.candidates.len()).unwrap_or(u32::MAX);
            reply.candidates.push(candidate);
        }
        meter.usage = meter.usage.zip(its_meter.usage).map(|(all, one)| all.plus(one));
        meter.output_bytes = meter.output_bytes.saturating_add(its_meter.output_bytes);
        meter.is_finished &= its_meter.is_finished;
    }
    reply.usage = meter.usage;
    let mut losses = ClientToolCalls::for_request(chat).convert_reply(&mut reply);
    let account_id = &call.key.record.account_id;
    call.engine.signatures.keep_reply(account_id, call.dialect.origin(), chat, &reply);
    let stamp = call.reply_stamp();
    let (body, more) = if facts.stream {
        let mut writer = call.dialect.stream_writer(chat, &stamp);
        let mut out = Vec::new();
        for event in into_events(reply) {
            writer.push(event, &mut out);
        }
        let losses = writer.finish(&mut out);
        (out, losses)
    } else {
        call.dialect.write_reply(reply, chat, &stamp)
    };
    losses.extend(more);
    Ok((FinishedReply { meter, losses, was_stopped: false }, Bytes::from(body)))
}
