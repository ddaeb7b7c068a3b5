//! Glob patterns in Redis's syntax: `*`, `?`, `[a-z]`, `[^a]`, and `\` before a literal character.

/// Returns whether `text` matches `pattern`. The time is bounded by the product of their lengths.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let mut matching = Matching::default();
    loop {
        if let Some(outcome) = matching.run(pattern, text, usize::MAX) {
            return outcome;
        }
    }
}

/// Most steps of [`matches`] for these lengths.
pub fn cost(pattern: &[u8], text: &[u8]) -> usize {
    (pattern.len() + 1).saturating_mul(text.len() + 1)
}

/// The position in a comparison of a text with a pattern, which is done in parts.
#[derive(Default)]
pub struct Matching {
    p: usize,
    t: usize,
    /// Positions after the last star in the pattern, and of the text that it was last matched
    /// against.
    star: Option<(usize, usize)>,
}

impl Matching {
    /// Continues for about `steps` steps. Returns the outcome, or `None` if it is not known yet.
    pub fn run(&mut self, pattern: &[u8], text: &[u8], steps: usize) -> Option<bool> {
        let Matching { p, t, star } = self;
        for _ in 0..steps {
            if pattern.get(*p) == Some(&b'*') {
                *p += 1;
                *star = Some((*p, *t));
                continue;
            }
            let step = if *t < text.len() { one(&pattern[*p..], text[*t]) } else { None };
            if let Some(length) = step {
                *p += length;
                *t += 1;
                continue;
            }
            if *t == text.len() && *p == pattern.len() {
                return Some(true);
            }
            // Backtrack: the last star takes one more byte.
            match star {
                Some((behind, from)) if *from < text.len() => {
                    *from += 1;
                    (*p, *t) = (*behind, *from);
                }
                _ => return Some(false),
            }
        }
        None
    }
}

/// Length of the first element of `pattern`, if that element matches `byte`.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'\\', literal, ..] => (*literal == byte).then_some(2),
        [b'[', ..] => {
            let mut i = 1;
            let negated = pattern.get(1) == Some(&b'^');
            i += usize::from(negated);
            let mut found = false;
            loop {
                match &pattern[i.min(pattern.len())..] {
                    // A class without a closing bracket extends to the end of the pattern.
                    [] => break,
                    [b'\\', literal, ..] => {
                        found |= *literal == byte;
                        i += 2;
                    }
                    [b']', ..] => {
                        i += 1;
                        break;
                    }
                    [from, b'-', to, ..] => {
                        found |= (*from.min(to)..=*from.max(to)).contains(&byte);
                        i += 3;
                    }
                    [literal, ..] => {
                        found |= *literal == byte;
                        i += 1;
                    }
                }
            }
            (found != negated).then_some(i)
        }
        [literal, ..] => (*literal == byte).then_some(1),
    }
}

#[cfg(test)]
mod tests;
