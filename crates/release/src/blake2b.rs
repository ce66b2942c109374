//! BLAKE2b with 64 bytes and no key, of RFC 7693: what minisign hashes a file with before it signs.
//!
//! Ours, because the crate of it would have all that hashes in the tree compiled with other features; and it is short.

const INITIAL: [u64; 8] = [
    0x6a09_e667_f3bc_c908,
    0xbb67_ae85_84ca_a73b,
    0x3c6e_f372_fe94_f82b,
    0xa54f_f53a_5f1d_36f1,
    0x510e_527f_ade6_82d1,
    0x9b05_688c_2b3e_6c1f,
    0x1f83_d9ab_fb41_bd6b,
    0x5be0_cd19_137e_2179,
];
/// Which words of a block each round mixes in.
const ORDER: [[usize; 16]; 10] = [
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
    [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
    [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
    [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
    [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
    [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
    [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
    [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
    [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
    [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
];
/// Columns, then diagonals, of four rows of four words.
const PLACES: [[usize; 4]; 8] = [
    [0, 4, 8, 12],
    [1, 5, 9, 13],
    [2, 6, 10, 14],
    [3, 7, 11, 15],
    [0, 5, 10, 15],
    [1, 6, 11, 12],
    [2, 7, 8, 13],
    [3, 4, 9, 14],
];
const ROUNDS: usize = 12;
const BLOCK: usize = 128;
const HASH_BYTES: usize = 64;

pub fn hash(content: &[u8]) -> [u8; HASH_BYTES] {
    let mut state = INITIAL;
    // The parameters: 64 bytes, no key, no tree.
    state[0] ^= 0x0101_0000 ^ HASH_BYTES as u64;
    let whole = content.len().saturating_sub(1) / BLOCK * BLOCK;
    let (blocks, rest) = content.split_at(whole);
    let mut counted = 0_u128;
    for block in blocks.chunks_exact(BLOCK) {
        counted += BLOCK as u128;
        mix(&mut state, block, counted, false);
    }
    let mut last = [0; BLOCK];
    last[..rest.len()].copy_from_slice(rest);
    mix(&mut state, &last, counted + rest.len() as u128, true);
    let mut hash = [0; HASH_BYTES];
    hash.chunks_exact_mut(8).zip(state).for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
    hash
}

fn mix(state: &mut [u64; 8], block: &[u8], counted: u128, is_last: bool) {
    let mut words = [0; 16];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().expect("a word has eight bytes"));
    }
    let mut v = [0; 16];
    v[..8].copy_from_slice(state);
    v[8..].copy_from_slice(&INITIAL);
    v[12] ^= counted as u64;
    v[13] ^= (counted >> 64) as u64;
    if is_last {
        v[14] = !v[14];
    }
    for round in 0..ROUNDS {
        let order = &ORDER[round % ORDER.len()];
        for (at, [a, b, c, d]) in PLACES.into_iter().enumerate() {
            for (word, turns) in [(words[order[2 * at]], [32, 24]), (words[order[2 * at + 1]], [16, 63])] {
                v[a] = v[a].wrapping_add(v[b]).wrapping_add(word);
                v[d] = (v[d] ^ v[a]).rotate_right(turns[0]);
                v[c] = v[c].wrapping_add(v[d]);
                v[b] = (v[b] ^ v[c]).rotate_right(turns[1]);
            }
        }
    }
    for (at, word) in state.iter_mut().enumerate() {
        *word ^= v[at] ^ v[at + 8];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(content: &[u8]) -> String {
        hash(content).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The first of RFC 7693, the others by coreutils' `b2sum`.
    #[test]
    fn hashes_are_those_of_the_standard() {
        for (content, wanted) in [
            (
                &b"abc"[..],
                "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d17d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923",
            ),
            (
                b"",
                "786a02f742015903c6c6fd852552d272912f4740e15847618a86e217f71f5419d25e1031afee585313896444934eb04b903a685b1448b755d56f701afe9be2ce",
            ),
            (
                &[b'a'; 128],
                "fc6c71f688f43ea7d60817478808f3cac753e61571865c95adbc2d9122c943a76b92c2cb1047ef3fe7bf6e436ec1d0a99a9e5b216780bf7fed9d7ca91d3a8f3b",
            ),
            (
                &[b'a'; 129],
                "55e6e0eb418149a8af92fd9ddc99254781b2f522a131b4f4d984404b71a00e1167b8124d5dcddd4c6977b299392335d6edd303da6d344d74bbef2d38101b232b",
            ),
            (
                &[b'a'; 1_000],
                "d6a69459fe93fc6b9537ed4336e5099e0dcca3e97290a412500ed7a0daffb03d80cf3650a20e0591f748e10c3c534945ee83d5f2c9722f1a68d98b8c01af23fd",
            ),
        ] {
            assert_eq!(shown(content), wanted, "{} bytes", content.len());
        }
    }
}
