//! MD5 (RFC 1321) of messages that fit into one block, in a chain. For measuring, not for security.
//!
//! The function here and the program in `benchmarks/linux` are built from this one file.

const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

const SINES: [u32; 64] = [
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501, 0x698098d8,
    0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821, 0xf61e2562, 0xc040b340,
    0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8, 0x21e1cde6, 0xc33707d6, 0xf4d50d87,
    0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a, 0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c,
    0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70, 0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039,
    0xe6db99e5, 0x1fa27cf8, 0xc4ac5665, 0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92,
    0xffeff47d, 0x85845dd1, 0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb,
    0xeb86d391,
];

/// The digest of the digest of … of nothing, so many times.
pub fn chain(rounds: u64) -> [u8; 16] {
    let mut digest = md5(&[]);
    for _ in 1..rounds {
        digest = md5(&digest);
    }
    digest
}

/// Of at most 55 bytes.
pub fn md5(message: &[u8]) -> [u8; 16] {
    assert!(message.len() < 56, "more than a block");
    let mut block = [0; 64];
    block[..message.len()].copy_from_slice(message);
    block[message.len()] = 0x80;
    block[56..].copy_from_slice(&(8 * message.len() as u64).to_le_bytes());
    let words: [u32; 16] = std::array::from_fn(|index| {
        u32::from_le_bytes([block[4 * index], block[4 * index + 1], block[4 * index + 2], block[4 * index + 3]])
    });
    let start = [0x67452301_u32, 0xefcdab89, 0x98badcfe, 0x10325476];
    let [mut a, mut b, mut c, mut d] = start;
    // Written out, so that every index is a constant to every compiler.
    macro_rules! steps {
        ($($step:literal)*) => { $({
            const STEP: usize = $step;
            let (mixed, word) = match STEP / 16 {
                0 => (b & c | !b & d, STEP),
                1 => (d & b | !d & c, (5 * STEP + 1) % 16),
                2 => (b ^ c ^ d, (3 * STEP + 5) % 16),
                _ => (c ^ (b | !d), 7 * STEP % 16),
            };
            let sum = a.wrapping_add(mixed).wrapping_add(SINES[STEP]).wrapping_add(words[word]);
            (a, d, c) = (d, c, b);
            b = b.wrapping_add(sum.rotate_left(SHIFTS[STEP / 16][STEP % 4]));
        })* };
    }
    steps!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
    steps!(32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63);
    let mut digest = [0; 16];
    for (index, (from, word)) in start.into_iter().zip([a, b, c, d]).enumerate() {
        digest[4 * index..4 * index + 4].copy_from_slice(&from.wrapping_add(word).to_le_bytes());
    }
    digest
}

pub fn hex(digest: [u8; 16]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
