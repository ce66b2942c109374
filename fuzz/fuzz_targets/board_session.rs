//! Whatever a peer sends in a handshake or an open session is a message or a typed fault that ends it, and takes no
//! more memory than the limits say.
#![no_main]

use board_link::{BoardSide, Goal, Keys, Link, Message, Policy};
use lighter_fuzz::fuzz_target;
use std::sync::Arc;

const ROOM_BYTES: u32 = 1 << 20;

fuzz_target!(|data: &[u8]| {
    // A message by itself.
    if let Ok(message) = Message::read(data) {
        assert_eq!(Message::read(&message.write()), Ok(message));
    }
    let Some((how, bytes)) = data.split_first() else { return };
    let (mut node, mut board) = ends();
    match how % 4 {
        // Garbage instead of a handshake, at either end.
        0 => feed(&mut board, bytes),
        1 => feed(&mut node, bytes),
        // A sound handshake, then garbage in place of records.
        2 => {
            shake(&mut node, &mut board);
            feed(&mut board, bytes);
        }
        // A peer that knows the keys and says what it likes.
        _ => {
            shake(&mut node, &mut board);
            for piece in bytes.chunks(usize::from(how / 4) + 1) {
                if node.write_text(piece).is_err() {
                    return;
                }
            }
            let records = node.outgoing().to_vec();
            feed(&mut board, &records);
        }
    }
});

fn ends() -> (Link, Link) {
    let (node, board) = (Keys::from_seed(&[1; 32]), Keys::from_seed(&[2; 32]));
    let policy = Policy { kernels: vec![[3; 32]], accepts_software_root: true };
    let goal = Goal { board: board.id(), channel_key: board.channel_public(), boot: [4; 16], policy };
    let side = BoardSide {
        nodes: vec![node.channel_public()],
        keys: board,
        boot: [4; 16],
        kernel: [3; 32],
        message_bytes_max: ROOM_BYTES,
    };
    (Link::open(&node, goal, [5; 32], 0).unwrap(), Link::accept(Arc::new(side), [6; 32], 0))
}

fn shake(node: &mut Link, board: &mut Link) {
    for _ in 0..2 {
        let bytes = node.outgoing().to_vec();
        node.sent(bytes.len());
        feed(board, &bytes);
        let bytes = board.outgoing().to_vec();
        board.sent(bytes.len());
        feed(node, &bytes);
    }
    assert!(node.is_open() && board.is_open());
}

fn feed(link: &mut Link, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let Ok(taken) = link.receive(bytes) else { return };
        bytes = &bytes[taken..];
        match link.read(0) {
            Ok(None) => {}
            Ok(Some(message)) => assert!(message.write().len() <= ROOM_BYTES as usize),
            Err(_) => {
                assert_eq!(link.receive(&[0]), Err(board_link::LinkFault::Ended));
                return;
            }
        }
    }
}
