//! Sessions: who gets one, what is believed in one, and what ends it.

use crate::world;
use crate::world::{board_link, board_side, call, drain, feed, goal, node_link, session};
use board_link::{
    DATA_BYTES_MAX, EvidenceFault, Failed, FailedKind, Goal, HANDSHAKE_MS_MAX, IDLE_MS_MAX, Keys, Link, LinkFault,
    Message, MessageFault, RECORD_BYTES_MAX, Stages, hash,
};
use std::sync::Arc;

#[test]
fn messages_of_any_length_arrive_whole_however_the_wire_cuts_them() {
    let (mut node, mut board) = session();
    for length in [0, 1, 100, 16_383, 16_384, 100_000, 1 << 20] {
        let sent = call(vec![42; length]);
        node.write(&sent).unwrap();
        let piece = if length > 1_000 { 1_460 } else { 1 };
        assert_eq!(feed(&mut board, &drain(&mut node), piece), Ok(vec![sent]), "{length} bytes");
        let stages = Stages { link_us: 1, run_us: 2, unlink_us: 3, memory_bytes: 65_536 };
        let reply = Message::Reply { id: 5, stages, frame: vec![43; length] };
        board.write(&reply).unwrap();
        assert_eq!(feed(&mut node, &drain(&mut board), piece), Ok(vec![reply]), "{length} bytes");
    }
}

#[test]
fn every_message_reads_as_it_was_written() {
    let code = hash(b"code");
    let messages = [
        Message::Offer { code, bytes: 1 << 20 },
        Message::Code { bytes: vec![1, 2, 3] },
        call(vec![4]),
        Message::Answer { frame: vec![5] },
        Message::Drop,
        Message::Wanted { code },
        Message::Held { code },
        Message::HostCall { number: 3, frame: vec![6] },
        Message::Log { level: 2, line: "warm".into() },
        Message::Reply { id: 7, stages: Stages::default(), frame: vec![8] },
        Message::Failed(Failed { kind: FailedKind::Link, reason: "no such import".into() }),
    ];
    for message in messages {
        let bytes = message.write();
        assert_eq!(Message::read(&bytes).as_ref(), Ok(&message));
        for length in 0..bytes.len() {
            // Shorter data is data; a shorter field is a fault. Neither is a panic.
            assert_ne!(Message::read(&bytes[..length]).as_ref(), Ok(&message));
        }
    }
}

#[test]
fn a_node_with_a_key_the_board_does_not_know_hears_nothing() {
    let stranger = Keys::from_seed(&[66; 32]);
    let mut node = Link::open(&stranger, goal(), [3; 32], 0).unwrap();
    let mut board = board_link(board_side(), 4);
    assert_eq!(feed(&mut board, &drain(&mut node), usize::MAX), Err(LinkFault::NodeUnknown));
    assert!(board.outgoing().is_empty());
}

#[test]
fn a_board_with_another_key_cannot_even_read_the_challenge() {
    let mut side = Arc::try_unwrap(board_side()).unwrap();
    side.keys = Keys::from_seed(&[66; 32]);
    let mut board = board_link(Arc::new(side), 4);
    let mut node = node_link(goal(), 3);
    assert_eq!(feed(&mut board, &drain(&mut node), usize::MAX), Err(LinkFault::Handshake));
}

#[test]
fn a_session_is_for_one_boot() {
    let mut node = node_link(Goal { boot: [8; 16], ..goal() }, 3);
    let mut board = board_link(board_side(), 4);
    assert_eq!(feed(&mut board, &drain(&mut node), usize::MAX), Err(LinkFault::Handshake));
}

#[test]
fn a_kernel_nobody_trusts_gets_no_session() {
    let mut policy = goal().policy;
    policy.kernels = vec![[10; 32]];
    let mut node = node_link(Goal { policy, ..goal() }, 3);
    let mut board = board_link(board_side(), 4);
    feed(&mut board, &drain(&mut node), usize::MAX).unwrap();
    let fault = LinkFault::Evidence(EvidenceFault::KernelUnknown(world::KERNEL));
    assert_eq!(feed(&mut node, &drain(&mut board), usize::MAX), Err(fault));
    assert_eq!(node.write(&call(vec![])), Err(LinkFault::Ended));
}

#[test]
fn where_the_policy_wants_hardware_a_kernels_own_word_is_not_enough() {
    let mut policy = goal().policy;
    policy.accepts_software_root = false;
    let mut node = node_link(Goal { policy, ..goal() }, 3);
    let mut board = board_link(board_side(), 4);
    feed(&mut board, &drain(&mut node), usize::MAX).unwrap();
    let fault = LinkFault::Evidence(EvidenceFault::SoftwareRoot);
    assert_eq!(feed(&mut node, &drain(&mut board), usize::MAX), Err(fault));
}

#[test]
fn nothing_is_said_before_the_board_has_proved_itself() {
    let mut node = node_link(goal(), 3);
    assert_eq!(node.write(&call(vec![])), Err(LinkFault::NotOpen));
    let mut board = board_link(board_side(), 4);
    assert_eq!(board.write(&Message::Wanted { code: [0; 32] }), Err(LinkFault::NotOpen));
}

#[test]
fn replayed_evidence_opens_nothing() {
    // A listener kept a whole session, and plays the board's part of it to the node's next one.
    let (mut node, mut board) = (node_link(goal(), 3), board_link(board_side(), 4));
    feed(&mut board, &drain(&mut node), usize::MAX).unwrap();
    let kept = drain(&mut board);
    let mut next = node_link(goal(), 5);
    assert_eq!(feed(&mut next, &kept, usize::MAX), Err(LinkFault::Handshake));
}

#[test]
fn a_replayed_first_record_gets_evidence_that_only_the_node_it_came_from_could_read() {
    let (mut node, mut board) = (node_link(goal(), 3), board_link(board_side(), 4));
    let first = drain(&mut node);
    feed(&mut board, &first, usize::MAX).unwrap();
    feed(&mut node, &drain(&mut board), usize::MAX).unwrap();
    node.write(&call(vec![1])).unwrap();
    let said = drain(&mut node);
    let mut again = board_link(board_side(), 5);
    feed(&mut again, &first, usize::MAX).unwrap();
    assert_eq!(feed(&mut again, &said, usize::MAX), Err(LinkFault::Forged));
}

#[test]
fn records_cannot_be_changed_repeated_swapped_or_left_out() {
    type Tamper = fn(Vec<Vec<u8>>) -> Vec<Vec<u8>>;
    let tampers: [Tamper; 4] = [
        |mut records| {
            records[0][10] ^= 1;
            records
        },
        |records| vec![records[0].clone(), records[0].clone()],
        |records| vec![records[1].clone(), records[0].clone()],
        |records| vec![records[1].clone()],
    ];
    for tamper in tampers {
        let (mut node, mut board) = session();
        let records = [call(vec![1]), call(vec![2])].map(|message| {
            node.write(&message).unwrap();
            drain(&mut node)
        });
        let tampered = tamper(records.to_vec()).concat();
        assert_eq!(feed(&mut board, &tampered, usize::MAX), Err(LinkFault::Forged));
        assert_eq!(board.receive(&[0]), Err(LinkFault::Ended));
    }
}

#[test]
fn half_open_sessions_end_by_themselves() {
    let board = board_link(board_side(), 4);
    assert!(!board.is_overdue(HANDSHAKE_MS_MAX) && board.is_overdue(HANDSHAKE_MS_MAX + 1));
    // A byte now and then does not keep one alive.
    let mut dripping = board_link(board_side(), 4);
    dripping.receive(&[1]).unwrap();
    assert!(dripping.is_overdue(HANDSHAKE_MS_MAX + 1));
    let (_, board) = session();
    assert!(!board.is_overdue(IDLE_MS_MAX) && board.is_overdue(IDLE_MS_MAX + 1));
}

/// A run of more than half a minute: its session was cut off while the reply was on its way.
#[test]
fn a_session_rests_from_the_end_of_what_its_board_did() {
    let (mut node, mut board) = session();
    node.write(&call(vec![1])).unwrap();
    feed(&mut board, &drain(&mut node), usize::MAX).unwrap();
    let ran_ms = 2 * IDLE_MS_MAX;
    assert!(board.is_overdue(ran_ms));
    board.stays(ran_ms);
    assert!(!board.is_overdue(ran_ms + IDLE_MS_MAX) && board.is_overdue(ran_ms + IDLE_MS_MAX + 1));
    // A handshake takes no longer for it.
    let mut half_open = board_link(board_side(), 4);
    half_open.stays(ran_ms);
    assert!(half_open.is_overdue(HANDSHAKE_MS_MAX + 1));
}

#[test]
fn lengths_that_are_none_end_the_session_before_anything_is_kept() {
    for bytes in [[0, 0], [0xff, 0xff]] {
        let mut board = board_link(board_side(), 4);
        let length = usize::from(u16::from_le_bytes(bytes));
        assert_eq!(board.receive(&bytes), Err(LinkFault::Record { bytes: length }));
        let (_, mut board) = session();
        assert_eq!(board.receive(&bytes), Err(LinkFault::Record { bytes: length }));
    }
    let (_, mut board) = session();
    let longest = RECORD_BYTES_MAX as u16;
    assert_eq!(board.receive(&longest.to_le_bytes()), Ok(2));
}

#[test]
fn messages_over_their_limit_are_refused_at_both_ends() {
    let (mut node, mut board) = session();
    let too_long = node.write(&call(vec![0; DATA_BYTES_MAX as usize + 1_000]));
    assert!(matches!(too_long, Err(LinkFault::Message(MessageFault::TooLarge { .. }))), "{too_long:?}");
    assert!(node.is_open(), "one that was never sent harms nobody");
    // The board has room for 4 MiB and finds out before it has kept more.
    node.write(&Message::Code { bytes: vec![0; 5 << 20] }).unwrap();
    let fault = feed(&mut board, &drain(&mut node), 1 << 16).unwrap_err();
    assert!(matches!(fault, LinkFault::Message(MessageFault::TooLarge { bytes_max, .. }) if bytes_max == 4 << 20));
}

#[test]
fn each_end_says_only_what_is_its_to_say() {
    let (mut node, mut board) = session();
    board.write(&Message::Drop).unwrap();
    assert!(matches!(feed(&mut node, &drain(&mut board), usize::MAX), Err(LinkFault::Direction { .. })));
    let (mut node, mut board) = session();
    node.write(&Message::Held { code: [0; 32] }).unwrap();
    assert!(matches!(feed(&mut board, &drain(&mut node), usize::MAX), Err(LinkFault::Direction { .. })));
}

#[test]
fn garbled_bytes_at_any_time_end_the_session_and_nothing_else() {
    let mut state = 1_u64;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    for _ in 0..50 {
        let garbage: Vec<u8> = (0..2_000).map(|_| next()).collect();
        let mut opening = node_link(goal(), 3);
        let _ = feed(&mut opening, &garbage, 500);
        assert!(!opening.is_open());
        let mut accepting = board_link(board_side(), 4);
        let _ = feed(&mut accepting, &garbage, 500);
        assert!(!accepting.is_open());
        let (_, mut board) = session();
        assert!(!matches!(feed(&mut board, &garbage, 500), Ok(read) if !read.is_empty()));
    }
}
