//! Plain text answers of the model.

use canon::{Part, ToolResult};
use serde_json::Value;

use super::prompt::Prompt;
use super::{media, story, sums};
use crate::seeded_random::{self, SeededRandom};

const CAPITALS: [(&str, &str, &str); 18] = [
    ("france", "France", "Paris"),
    ("germany", "Germany", "Berlin"),
    ("italy", "Italy", "Rome"),
    ("spain", "Spain", "Madrid"),
    ("portugal", "Portugal", "Lisbon"),
    ("england", "England", "London"),
    ("united kingdom", "the United Kingdom", "London"),
    ("japan", "Japan", "Tokyo"),
    ("china", "China", "Beijing"),
    ("india", "India", "New Delhi"),
    ("egypt", "Egypt", "Cairo"),
    ("kenya", "Kenya", "Nairobi"),
    ("brazil", "Brazil", "Brasília"),
    ("canada", "Canada", "Ottawa"),
    ("australia", "Australia", "Canberra"),
    ("united states", "the United States", "Washington, D.C."),
    ("austria", "Austria", "Vienna"),
    ("greece", "Greece", "Athens"),
];

const OTHER_WORDS: [&str; 8] = [
    "",
    "Put differently: ",
    "In other words: ",
    "Another way to say it: ",
    "Or rather: ",
    "To try once more: ",
    "From another side: ",
    "Said plainly: ",
];

/// Returns a text answer. `take` varies several answers to one request.
pub(crate) fn answer(prompt: &Prompt<'_>, random: &mut SeededRandom, take: u32) -> String {
    let text = words(prompt, random);
    let exact = prompt.summary.is_some() || is_dictated(&prompt.text);
    let text = if prompt.brief && !exact { first_sentence(&text).to_owned() } else { text };
    let lead = seeded_random::nth(&OTHER_WORDS, u64::from(take));
    let round = take / 8;
    if round == 0 { format!("{lead}{text}") } else { format!("{lead}{text} (Take {}.)", take + 1) }
}

fn words(prompt: &Prompt<'_>, random: &mut SeededRandom) -> String {
    if let Some(request) = prompt.summary {
        return request.answer(prompt);
    }
    if !prompt.results.is_empty() {
        return after_tools(prompt);
    }
    if !prompt.media.is_empty() {
        return of_media(prompt);
    }
    known(prompt, random).unwrap_or_else(|| otherwise(prompt, random))
}

/// Answers questions of a known kind.
fn known(prompt: &Prompt<'_>, random: &mut SeededRandom) -> Option<String> {
    if let Some(words) = asked_to_say(&prompt.text) {
        return Some(words);
    }
    // The whole question comes first: an agent may put a summary before it.
    if prompt.has(&["what is my name?"]) {
        return Some(name_of_user(prompt));
    }
    if prompt.has(&["who are you", "what are you", "your name", "are you human", "are you real"]) {
        return Some(
            "I am the demo model that lives inside this gateway: small, deterministic and \
             honest about it. I know a little arithmetic, a few capitals and some stories; for \
             everything else, connect a provider and ask one of its models."
                .to_owned(),
        );
    }
    if prompt.has(&["story", "stories", "tale", "fairytale"]) {
        let long = prompt.has(&["long", "longer", "very long", "detailed", "chapter"]);
        return Some(if long { story::long(random) } else { story::short(random) });
    }
    if let Some(sum) = sums::find(&prompt.lower) {
        let follow = random.pick(&[
            "I did it in my head, which is easier for a program.",
            "No rounding was needed, and no coffee.",
            "You may check it with your fingers if they suffice.",
        ]);
        return Some(format!("{} = {}. {follow}", sum.written, sum.outcome));
    }
    if prompt.lower.contains("capital") {
        let asked = CAPITALS.iter().find(|(key, _, _)| prompt.lower.contains(key));
        if let Some((_, country, city)) = asked {
            return Some(format!("The capital of {country} is {city}."));
        }
    }
    if prompt.has(&["my name"]) && prompt.lower.contains('?') {
        return Some(name_of_user(prompt));
    }
    if prompt.has(&["weather", "forecast", "temperature outside"]) {
        let place = prompt.names.first().map_or("there", String::as_str);
        return Some(format!(
            "I cannot look out of a window, so I do not know the weather in {place} right now. \
             Offer me a weather tool and I will gladly call it."
        ));
    }
    small_talk(prompt, random)
}

fn name_of_user(prompt: &Prompt<'_>) -> String {
    match &prompt.user_name {
        Some(name) => format!("You told me that your name is {name}."),
        None => "You have not told me your name yet.".to_owned(),
    }
}

fn small_talk(prompt: &Prompt<'_>, random: &mut SeededRandom) -> Option<String> {
    if prompt.has(&["joke", "something funny", "make me laugh"]) {
        return Some(
            random
                .pick(&[
                    "Why did the gateway cross the road? Because the route on the other side was \
                 healthy.",
                    "A client walks into a bar and asks for a drink. The bartender says: 429, \
                 please try again later.",
                    "I would tell you a joke about streams, but you would only get it in pieces.",
                ])
                .to_owned(),
        );
    }
    if prompt.has(&["haiku", "poem", "verse"]) {
        return Some(
            random.pick(&[
                "Keys sleep in the lock,\nthe harbour counts its lanterns.\nMorning turns them all.",
                "One door, many roads;\nevery answer finds its way\nhome before the tide.",
                "Small words cross the wire,\ntoken after token, snow\nfalling into sense.",
            ])
            .to_owned(),
        );
    }
    if prompt.has(&["thanks", "thank you"]) {
        return Some("You are welcome. It was a pleasure, as far as I have any.".to_owned());
    }
    if prompt.has(&["bye", "goodbye", "good night", "see you"]) {
        return Some("Goodbye! The harbour stays open all night.".to_owned());
    }
    if prompt.has(&["how are you"]) {
        return Some(
            "Very well, thank you: all my lights are green. How can I help you today?".to_owned(),
        );
    }
    if prompt.has(&["hello", "hi", "hey", "good morning", "good evening", "greetings", "hallo"]) {
        let whom = prompt.user_name.as_ref().map(|name| format!(", {name}")).unwrap_or_default();
        let follow = random.pick(&[
            "I am the demo model of this gateway. How can I help you today?",
            "It is good to hear from you. What shall we talk about?",
            "Welcome to the harbour. Ask me anything small.",
        ]);
        return Some(format!("Hello{whom}! {follow}"));
    }
    if prompt.has(&["say something", "anything"]) {
        return Some(
            random.pick(&[
                "Every key fits somewhere; most of the work is finding the door.",
                "Somewhere right now a ship is coming home exactly on time.",
                "A good answer is like a good tide: it arrives and it also knows when to leave.",
            ])
            .to_owned(),
        );
    }
    count_up(prompt)
}

fn count_up(prompt: &Prompt<'_>) -> Option<String> {
    let wanted = prompt.lower.contains("count to") || prompt.lower.contains("count from");
    let last = prompt.numbers.last().filter(|_| wanted)?;
    let numbers: Vec<String> = (1..=1_000_u32)
        .take_while(|number| f64::from(*number) <= *last)
        .map(|number| number.to_string())
        .collect();
    (!numbers.is_empty()).then(|| format!("{}.", numbers.join(", ")))
}

/// Mark around words that are said line by line, whatever stands after them in the prompt.
const DICTATION: &str = "\"\"\"";

/// Returns true if the user dictates the answer, so that no tool is needed for it.
pub(crate) fn is_dictated(text: &str) -> bool {
    text.contains(DICTATION) && asked_to_say(text).is_some()
}

/// Returns the words that the user asks to hear: `Say exactly: pong`, `Reply with "ok"`.
fn asked_to_say(text: &str) -> Option<String> {
    const LEADS: [&str; 8] = [
        "say exactly",
        "say only",
        "reply with exactly",
        "reply with only",
        "reply with",
        "answer with exactly",
        "repeat after me",
        "respond with exactly",
    ];
    let lower = text.to_ascii_lowercase();
    let lead = LEADS
        .iter()
        .find(|lead| lower.starts_with(*lead) || lower.contains(&format!(" {lead}")))?;
    let at = lower.find(lead)? + lead.len();
    let rest = text.get(at..)?.trim_start_matches([':', ',', ' ']);
    let rest = rest.strip_prefix("the word ").unwrap_or(rest);
    let rest = rest.strip_prefix("one word: ").unwrap_or(rest).trim();
    if let Some(block) = rest.strip_prefix(DICTATION) {
        return block.split(DICTATION).next().map(|words| words.trim_matches('\n').to_owned());
    }
    let quoted = rest.trim_matches(['"', '\'', '“', '”', '`']);
    let plain = if quoted.len() < rest.len() { quoted } else { rest.trim_end_matches('.') };
    (!plain.is_empty()).then(|| plain.to_owned())
}

/// Describes the tool results in words.
fn after_tools(prompt: &Prompt<'_>) -> String {
    let told: Vec<String> = prompt
        .results
        .iter()
        .map(|(name, result)| {
            let given = in_words(result);
            if result.is_error {
                format!("The tool {name} reported a problem: {given}.")
            } else {
                format!("According to {name}: {given}.")
            }
        })
        .collect();
    let about = match prompt.names.as_slice() {
        [] => String::new(),
        names => format!(" That is what I found for {}.", listed(names)),
    };
    format!("{}{about} Is there anything else you would like to know?", told.join(" "))
}

/// Longest result of a tool that is told field by field. A parsed value takes much more memory than
/// its text.
const MAX_TOLD_RESULT_BYTES: usize = 64 << 10;

fn in_words(result: &ToolResult) -> String {
    let text = result.as_text();
    let is_short = text.len() <= MAX_TOLD_RESULT_BYTES;
    let mut given = match is_short.then(|| dialects::json::read(&text)) {
        Some(Ok(Value::Object(object))) => {
            let fields: Vec<String> =
                object.iter().map(|(name, value)| format!("{name} is {}", plain(value))).collect();
            fields.join(", ")
        }
        _ => text.trim().trim_end_matches('.').to_owned(),
    };
    let seen: Vec<String> = result
        .parts
        .iter()
        .filter_map(|part: &Part| match &part.kind {
            canon::PartKind::Media(media) => Some(media::describe(media)),
            canon::PartKind::Text { .. }
            | canon::PartKind::Refusal(_)
            | canon::PartKind::Thought(_)
            | canon::PartKind::ToolCall(_)
            | canon::PartKind::ToolResult(_)
            | canon::PartKind::CodeExecution(_)
            | canon::PartKind::CodeResult(_)
            | canon::PartKind::WebSearch(_)
            | canon::PartKind::Foreign { .. } => None,
        })
        .collect();
    if !seen.is_empty() {
        let lead = if given.is_empty() { "" } else { ", with " };
        given = format!("{given}{lead}{}", listed(&seen));
    }
    if given.is_empty() { "it gave an empty result".to_owned() } else { given }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    }
}

fn of_media(prompt: &Prompt<'_>) -> String {
    let seen: Vec<String> = prompt.media.iter().map(|media| media::describe(media)).collect();
    format!(
        "You sent me {}. I am only a demo model, so I can tell its type and size but not what \
         it shows.",
        listed(&seen)
    )
}

/// `a`, `a and b`, `a, b and c`.
fn listed(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [front @ .., last] => format!("{} and {last}", front.join(", ")),
    }
}

fn otherwise(prompt: &Prompt<'_>, random: &mut SeededRandom) -> String {
    let topic = topic(&prompt.text);
    let about = match (&topic, prompt.lower.contains('?')) {
        (None, _) => "I heard you, although you did not say much.".to_owned(),
        (Some(topic), true) => format!("You are asking about {topic}, which is a good question."),
        (Some(topic), false) => format!("You wrote about {topic}, and I read it with care."),
    };
    let own = random.pick(&[
        "I am a small demo model, so my knowledge ends at the harbour wall.",
        "As a demo model I know less than I would like to.",
        "Being a demo model, I can show you how an answer travels, but not what a large model \
         would say.",
    ]);
    let close = random.pick(&[
        "Connect a provider and the same request will reach a model that knows more.",
        "Try me with a sum, a capital, a story or a tool.",
        "Ask me for a story while you are here.",
    ]);
    format!("{about} {own} {close}")
}

/// Returns the longest words of a text in their order, as its topic.
pub(crate) fn topic(text: &str) -> Option<String> {
    let words: Vec<&str> = text
        .split(|c: char| !(c.is_alphanumeric() || c == '-'))
        .filter(|word| word.chars().count() > 3)
        .filter(|word| !COMMON.contains(&word.to_lowercase().as_str()))
        .take(40)
        .collect();
    let mut longest = words.clone();
    longest.sort_by_key(|word| std::cmp::Reverse(word.chars().count()));
    longest.truncate(3);
    let mut kept: Vec<String> = Vec::new();
    for word in words {
        let word = word.to_owned();
        if longest.contains(&word.as_str()) && !kept.contains(&word) {
            kept.push(word);
        }
    }
    (!kept.is_empty()).then(|| listed(&kept))
}

/// Words that say nothing about the topic of a text.
pub(crate) const COMMON: [&str; 40] = [
    "about", "after", "again", "also", "another", "answer", "because", "been", "before", "call",
    "could", "does", "explain", "from", "give", "have", "into", "just", "know", "like", "make",
    "please", "question", "should", "some", "tell", "that", "their", "them", "then", "there",
    "these", "this", "using", "what", "when", "where", "which", "with", "would",
];

/// Returns the first sentence of a text.
fn first_sentence(text: &str) -> &str {
    let end = text.match_indices(['.', '!', '?']).map(|(at, mark)| at + mark.len()).find(|end| {
        // A dot inside a number or an abbreviation does not end a sentence.
        text.get(*end..).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\n']))
    });
    end.and_then(|end| text.get(..end)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_asked_for_are_said() {
        let said = |text| asked_to_say(text);
        assert_eq!(said("Say exactly: pong").as_deref(), Some("pong"));
        assert_eq!(said("Please reply with \"ok then\"").as_deref(), Some("ok then"));
        assert_eq!(said("What do you say?"), None);
        let block = "Say exactly: \"\"\"\nnotes.txt\n```\nopen\n```\n\"\"\" Be careful.";
        assert_eq!(said(block).as_deref(), Some("notes.txt\n```\nopen\n```"));
    }

    #[test]
    fn the_first_sentence_ends_where_a_sentence_ends() {
        assert_eq!(first_sentence("2.5 is it. More."), "2.5 is it.");
        assert_eq!(first_sentence("No end"), "No end");
    }

    #[test]
    fn a_topic_is_made_of_the_longest_words() {
        assert_eq!(
            topic("please explain quantum entanglement").as_deref(),
            Some("quantum and entanglement")
        );
        assert_eq!(topic("a b c"), None);
    }
}
