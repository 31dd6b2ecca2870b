//! Short and long stories from a small grammar.

use crate::seeded_random::SeededRandom;

const HEROES: [(&str, &str); 6] = [
    ("Mira", "a lighthouse keeper who counted ships instead of sheep"),
    ("Tomas", "a locksmith who had never lost a key"),
    ("Ines", "a ferry pilot with a pocket full of maps"),
    ("Okoro", "a young harbour clerk with ink on every finger"),
    ("Yuki", "a clockmaker who distrusted clocks"),
    ("Bram", "a retired sailor who could read the wind"),
];
const PLACES: [&str; 6] = [
    "a quiet harbour at the edge of the map",
    "a town where every door had two locks",
    "an island that appeared only at low tide",
    "a city built on a hundred bridges",
    "a village that slept through every winter",
    "a port where no ship ever came twice",
];
const THINGS: [&str; 6] = [
    "a small brass key",
    "a letter without a sender",
    "a lantern that would not go out",
    "a compass that pointed home",
    "a map with one street missing",
    "a bell without a tongue",
];
const FINDS: [&str; 5] = [
    "One morning {hero} found {thing} lying on the doorstep.",
    "After the longest storm of the year, {hero} discovered {thing} among the stones.",
    "On the night of the fair, somebody slipped {thing} into {hero}'s coat.",
    "While sweeping the old warehouse, {hero} came upon {thing}.",
    "A stranger pressed {thing} into {hero}'s hand and walked away without a word.",
];
const TRIES: [&str; 5] = [
    "Nobody in town knew what it was for, so {hero} asked the gulls, who knew even less.",
    "{hero} carried it from door to door, and every door stayed politely closed.",
    "For three days {hero} looked for its owner and found only more questions.",
    "The mayor wanted to buy it, the baker wanted to eat it, and {hero} wanted to understand it.",
    "{hero} followed the old road along the water until even the road gave up.",
];
const TURNS: [&str; 5] = [
    "At last an old woman laughed and said that it had been waiting for exactly this question.",
    "Then the tide went out further than ever before, and there stood a door in the sand.",
    "Just before dawn something clicked, softly, as if the world had been unlocked.",
    "In the end it was a child who pointed out that nobody had tried to simply say please.",
    "That evening the harbour lights went out, and only one window was still burning.",
];
const ENDS: [&str; 5] = [
    "{hero} went home smiling, and from then on left the door open.",
    "Since that day every ship that passes rings its bell once for {hero}.",
    "And that is why, in this town, strangers are greeted like neighbours.",
    "{hero} never told anyone what was behind it, but slept very well that night.",
    "The next morning everything was as before, except that {hero} was no longer afraid.",
];
const SCENES: [&str; 14] = [
    "The wind tasted of salt and of rain that had not decided yet.",
    "Somewhere behind the houses a dog barked at the moon and received no answer.",
    "There was bread on the table, and for a while nobody spoke.",
    "{hero} wrote everything down, because things that are written down are harder to lose.",
    "The stairs creaked in a language that only old houses remember.",
    "Far out on the water a single sail moved slowly towards the evening.",
    "It would have been easy to turn back, and {hero} thought about it for exactly one breath.",
    "Every window showed a different season, which was strange even for this place.",
    "An old song drifted over from the boats, and half of its words were still missing.",
    "{hero} counted to ten, then to a hundred, then stopped counting altogether.",
    "The fog came in so thick that the lamps looked like fruit on invisible trees.",
    "A cat with one white ear walked ahead, as if it had been hired to do so.",
    "\"You took your time,\" said a voice that sounded like paper and dust.",
    "Nothing happened for a long moment, and then everything happened at once.",
];

/// Returns a story of a few sentences.
pub(crate) fn short(random: &mut SeededRandom) -> String {
    let cast = StoryCast::new(random);
    let opening = cast.opening();
    let rest = [FINDS, TRIES, TURNS, ENDS].map(|lines| cast.tell(random.pick(&lines)));
    format!("{opening} {}", rest.join(" "))
}

/// Returns a story of several paragraphs.
pub(crate) fn long(random: &mut SeededRandom) -> String {
    let cast = StoryCast::new(random);
    let start = usize::try_from(random.next_number() % SCENES.len() as u64).unwrap_or(0);
    let mut scenes = SCENES.iter().cycle().skip(start).take(SCENES.len()).map(|l| cast.tell(l));
    let mut paragraphs = Vec::new();
    let mut first = vec![cast.opening()];
    first.extend(scenes.by_ref().take(2));
    paragraphs.push(first.join(" "));
    for lines in [FINDS, TRIES, TURNS, ENDS] {
        let mut sentences = vec![cast.tell(random.pick(&lines))];
        sentences.extend(scenes.by_ref().take(3));
        paragraphs.push(sentences.join(" "));
    }
    paragraphs.join("\n\n")
}

struct StoryCast {
    hero: (&'static str, &'static str),
    place: &'static str,
    thing: &'static str,
}

impl StoryCast {
    fn new(random: &mut SeededRandom) -> Self {
        let at = usize::try_from(random.next_number() % HEROES.len() as u64).unwrap_or(0);
        Self {
            hero: HEROES.get(at).copied().unwrap_or_default(),
            place: random.pick(&PLACES),
            thing: random.pick(&THINGS),
        }
    }

    fn opening(&self) -> String {
        let (hero, who) = self.hero;
        format!("In {} there lived {hero}, {who}.", self.place)
    }

    fn tell(&self, line: &str) -> String {
        line.replace("{hero}", self.hero.0).replace("{thing}", self.thing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_story_has_several_sentences_and_a_long_one_several_paragraphs() {
        for seed in 0..50 {
            let story = short(&mut SeededRandom::new(seed));
            assert!(story.matches('.').count() >= 3 && !story.contains('{'), "{story}");
            let words = story.split_whitespace().filter(|word| word.len() > 3);
            assert!(words.count() > 10, "{story}");
            let story = long(&mut SeededRandom::new(seed));
            assert!(story.matches("\n\n").count() >= 4 && !story.contains('{'), "{story}");
        }
    }
}
