//! What the tests share: a board, a node, and a wire between them that can be tampered with.
#![allow(dead_code, reason = "each test file uses a part")]

use board_link::{Beacon, BoardSide, Boot, Goal, Hash, Keys, Link, LinkFault, Load, Machine, Message, Policy, hash};
use std::sync::Arc;

pub const BOOT: Boot = [7; 16];
pub const KERNEL: Hash = [9; 32];

pub fn board_keys() -> Keys {
    Keys::from_seed(&[1; 32])
}

pub fn node_keys() -> Keys {
    Keys::from_seed(&[2; 32])
}

pub fn beacon() -> Beacon {
    let keys = board_keys();
    Beacon {
        board: keys.id(),
        channel_key: keys.channel_public(),
        boot: BOOT,
        sequence: 1,
        uptime_ms: 1_500,
        kernel: KERNEL,
        link_port: 7312,
        name: "shed".into(),
        machine: Machine { board: "qemu-arm".into(), architecture: "aarch64".into(), memory_bytes: 256 << 20 },
        formats: vec!["aarch64-unknown-none/48.1".into(), "pulley64/48.1".into()],
        load: Load { sessions: 1, is_running: true, runs: 12, free_bytes: 200 << 20 },
    }
}

pub fn board_side() -> Arc<BoardSide> {
    Arc::new(BoardSide {
        keys: board_keys(),
        nodes: vec![node_keys().channel_public()],
        boot: BOOT,
        kernel: KERNEL,
        message_bytes_max: 4 << 20,
    })
}

pub fn goal() -> Goal {
    let keys = board_keys();
    let policy = Policy { kernels: vec![KERNEL], accepts_software_root: true };
    Goal { board: keys.id(), channel_key: keys.channel_public(), boot: BOOT, policy }
}

pub fn node_link(goal: Goal, seed: u8) -> Link {
    Link::open(&node_keys(), goal, [seed; 32], 0).unwrap()
}

pub fn board_link(side: Arc<BoardSide>, seed: u8) -> Link {
    Link::accept(side, [seed; 32], 0)
}

/// Everything one end has to send.
pub fn drain(link: &mut Link) -> Vec<u8> {
    let bytes = link.outgoing().to_vec();
    link.sent(bytes.len());
    bytes
}

/// Gives bytes to an end, in pieces of `piece`; returns what it read.
pub fn feed(link: &mut Link, bytes: &[u8], piece: usize) -> Result<Vec<Message>, LinkFault> {
    let mut read = Vec::new();
    for mut piece in bytes.chunks(piece) {
        while !piece.is_empty() {
            piece = &piece[link.receive(piece)?..];
            read.extend(link.read(0)?);
        }
    }
    Ok(read)
}

/// Two ends that have shaken hands.
pub fn session() -> (Link, Link) {
    let (mut node, mut board) = (node_link(goal(), 3), board_link(board_side(), 4));
    assert_eq!(feed(&mut board, &drain(&mut node), usize::MAX), Ok(vec![]));
    assert_eq!(feed(&mut node, &drain(&mut board), usize::MAX), Ok(vec![]));
    assert!(node.is_open() && board.is_open());
    (node, board)
}

pub fn call(event: Vec<u8>) -> Message {
    Message::Call {
        id: 5,
        code: hash(b"code"),
        may: 0b1011,
        run_ms_max: 1_000,
        memory_bytes_max: 1 << 20,
        now_ms: 1_700_000_000_000,
        event,
    }
}
