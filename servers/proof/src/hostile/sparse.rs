//! Run-length encoding of images. A change of some encoded bytes by a fuzzer changes a part of the
//! image.

/// Largest decoded image. Limits the memory that a made-up encoding can take.
const MOST: usize = 4 << 20;
/// Flag in a length: a run of one byte.
const RUN: u16 = 1 << 15;
/// Shorter runs are not worth encoding.
const SHORT: usize = 8;

/// Encodes an image. Each piece begins with a 15-bit length and a flag bit. With the flag, one byte
/// follows that is repeated; without it, as many literal bytes follow.
#[must_use]
pub fn compress(image: &[u8]) -> Vec<u8> {
    let mut short = Vec::new();
    let mut plain: &[u8] = &[];
    let put = |short: &mut Vec<u8>, plain: &[u8]| {
        for piece in plain.chunks(usize::from(RUN - 1)) {
            short.extend(u16::try_from(piece.len()).expect("15 bits").to_le_bytes());
            short.extend(piece);
        }
    };
    let mut rest = image;
    while let Some(first) = rest.first() {
        let run = rest.iter().take_while(|byte| *byte == first).count();
        if run < SHORT {
            let begin = image.len() - rest.len() - plain.len();
            plain = &image[begin..begin + plain.len() + run];
        } else {
            put(&mut short, plain);
            plain = &image[image.len()..];
            for length in std::iter::repeat_n(usize::from(RUN - 1), run / usize::from(RUN - 1))
                .chain([run % usize::from(RUN - 1)])
            {
                if length > 0 {
                    short.extend((RUN | u16::try_from(length).expect("15 bits")).to_le_bytes());
                    short.push(*first);
                }
            }
        }
        rest = &rest[run..];
    }
    put(&mut short, plain);
    short
}

/// Decodes an image. Data beyond the size limit and an incomplete last piece are ignored.
#[must_use]
pub fn expand(mut short: &[u8]) -> Vec<u8> {
    let mut image = Vec::new();
    while let [low, high, rest @ ..] = short {
        let word = u16::from_le_bytes([*low, *high]);
        let length = usize::from(word & !RUN);
        short = rest;
        if image.len() + length > MOST {
            break;
        }
        if word & RUN != 0 {
            let [byte, rest @ ..] = short else { break };
            image.resize(image.len() + length, *byte);
            short = rest;
        } else {
            let (plain, rest) = short.split_at(length.min(short.len()));
            image.extend(plain);
            short = rest;
        }
    }
    image
}

#[cfg(test)]
mod tests;
