//! CRC-32 as in zlib: the checksum every SDK language has in its standard library.
//!
//! Eight bytes a step with eight tables (8 KiB), made by the compiler.

const POLYNOMIAL: u32 = 0xEDB8_8320;

static TABLES: [[u32; 256]; 8] = tables();

/// The checksum of `bytes`.
pub fn crc32(bytes: &[u8]) -> u32 {
    crc32_continued(0, bytes)
}

/// The checksum of what gave `checksum` followed by `bytes`.
pub fn crc32_continued(checksum: u32, bytes: &[u8]) -> u32 {
    let mut state = !checksum;
    let (steps, rest) = bytes.as_chunks::<8>();
    for step in steps {
        let word = u64::from_le_bytes(*step) ^ u64::from(state);
        state = 0;
        for (table, byte) in TABLES.iter().rev().zip(word.to_le_bytes()) {
            state ^= table[usize::from(byte)];
        }
    }
    for byte in rest {
        state = TABLES[0][usize::from(state as u8 ^ byte)] ^ (state >> 8);
    }
    !state
}

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut state = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            state = if state & 1 == 1 { (state >> 1) ^ POLYNOMIAL } else { state >> 1 };
            bit += 1;
        }
        tables[0][byte] = state;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let shorter = tables[table - 1][byte];
            tables[table][byte] = tables[0][(shorter & 0xFF) as usize] ^ (shorter >> 8);
            byte += 1;
        }
        table += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_standard_comes_out() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn parts_give_the_checksum_of_the_whole() {
        let bytes: [u8; 100] = core::array::from_fn(|i| (i * 7) as u8);
        for cut in 0..=bytes.len() {
            assert_eq!(crc32_continued(crc32(&bytes[..cut]), &bytes[cut..]), crc32(&bytes));
        }
    }
}
