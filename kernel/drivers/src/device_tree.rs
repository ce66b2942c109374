//! The device tree of a boot loader, as far as it is needed: where memory is.

/// Start and length of the first memory a tree names. None: it names none, or is no tree.
pub fn memory(tree: &[u8]) -> Option<(u64, u64)> {
    const NODE: u32 = 1;
    const NODE_END: u32 = 2;
    const PROPERTY: u32 = 3;
    const SKIP: u32 = 4;
    let word = |at: usize| Some(u32::from_be_bytes(*tree.get(at..)?.first_chunk()?));
    let (structure, strings) = (word(8)? as usize, word(12)? as usize);
    let (mut at, mut is_memory) = (structure, false);
    loop {
        let token = word(at)?;
        at += 4;
        match token {
            NODE => {
                let rest = tree.get(at..)?;
                let length = rest.iter().position(|byte| *byte == 0)?;
                is_memory = rest.starts_with(b"memory");
                at = (at + length + 1).next_multiple_of(4);
            }
            PROPERTY => {
                let (length, name) = (word(at)? as usize, word(at + 4)? as usize);
                let value = tree.get(at + 8..)?.get(..length)?;
                if is_memory && tree.get(strings + name..)?.starts_with(b"reg\0") {
                    let long = |at: usize| Some(u64::from_be_bytes(*value.get(at..)?.first_chunk()?));
                    return Some((long(0)?, long(8)?));
                }
                at = (at + 8 + length).next_multiple_of(4);
            }
            NODE_END | SKIP => {}
            _ => return None,
        }
    }
}
