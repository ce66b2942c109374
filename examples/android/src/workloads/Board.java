package workloads;

import android.text.TextUtils;
import java.util.Random;

/**
 * A chess position. Squares are `16 * rank + file`: what has a bit of 0x88 is beside the board.
 *
 * <p>White's pieces are positive and Black's negative. Moves are made and taken back in place.
 */
final class Board {
    static final int PAWN = 1;
    static final int KNIGHT = 2;
    static final int BISHOP = 3;
    static final int ROOK = 4;
    static final int QUEEN = 5;
    static final int KING = 6;
    static final int WHITE = 1;
    static final int NONE = -1;
    static final int BESIDE = 0x88;
    static final String LETTERS = " PNBRQK";

    static final int[] KNIGHT_STEPS = {33, 31, 18, 14, -33, -31, -18, -14};
    static final int[] DIAGONALS = {17, 15, -17, -15};
    static final int[] LINES = {16, 1, -16, -1};
    static final int[] ALL_STEPS = {17, 15, -17, -15, 16, 1, -16, -1};

    /** Half-moves of one line that can be made. */
    private static final int MADE_MAX = 1_024;
    private static final int FEN_LENGTH_MAX = 100;
    private static final long[][] KEYS = keys();

    final int[] squares = new int[128];
    /** Who moves: 1 White, -1 Black. */
    int side = WHITE;
    /** Bits: White may castle short 1 and long 2, Black short 4 and long 8. */
    int castling;
    /** Where a pawn that just made two steps can be taken. */
    int passing = NONE;
    /** Of the position; equal positions have the same. */
    long hash;
    private final int[] kings = new int[2];
    private final long[] before = new long[MADE_MAX];
    private final int[] undo = new int[MADE_MAX];
    private int made;

    /** Reads Forsyth-Edwards notation. Throws IllegalArgumentException where it is none. */
    Board(String fen) {
        String[] parts = TextUtils.split(fen.length() > FEN_LENGTH_MAX ? "" : fen.trim(), " +");
        if (parts.length < 4) {
            throw new IllegalArgumentException("no position: " + fen);
        }
        int square = 16 * 7;
        for (char letter : parts[0].toCharArray()) {
            if (letter == '/') {
                square = (square & 0xF0) - 16;
            } else if (letter >= '1' && letter <= '8') {
                square += letter - '0';
            } else {
                int piece = LETTERS.indexOf(Character.toUpperCase(letter));
                if (piece < PAWN || square < 0 || (square & BESIDE) != 0) {
                    throw new IllegalArgumentException("no position: " + fen);
                }
                put(square++, Character.isUpperCase(letter) ? piece : -piece);
            }
        }
        side = parts[1].equals("w") ? WHITE : -WHITE;
        for (int bit = 0; bit < 4; bit++) {
            castling |= parts[2].indexOf("KQkq".charAt(bit)) >= 0 ? 1 << bit : 0;
        }
        passing = parts[3].length() == 2 ? square(parts[3]) : NONE;
        if (squares[kings[0]] != -KING || squares[kings[1]] != KING) {
            throw new IllegalArgumentException("a position without its two kings: " + fen);
        }
        hash ^= state();
    }

    private static long[][] keys() {
        Random random = new Random(7);
        long[][] keys = new long[14][128];
        for (long[] row : keys) {
            for (int at = 0; at < row.length; at++) {
                row[at] = random.nextLong();
            }
        }
        return keys;
    }

    /** What of the hash is not pieces. */
    private long state() {
        long state = KEYS[13][castling] ^ (side == WHITE ? 0 : KEYS[13][100]);
        return passing == NONE ? state : state ^ KEYS[6][passing];
    }

    private void put(int square, int piece) {
        squares[square] = piece;
        hash ^= KEYS[piece + 6 + (piece > 0 ? 1 : 0)][square];
        if (Math.abs(piece) == KING) {
            kings[piece > 0 ? 1 : 0] = square;
        }
    }

    private int take(int square) {
        int piece = squares[square];
        squares[square] = 0;
        hash ^= KEYS[piece + 6 + (piece > 0 ? 1 : 0)][square];
        return piece;
    }

    /** Makes a move that {@link Moves} gave. */
    void make(int move) {
        int from = Moves.from(move);
        int to = Moves.to(move);
        before[made] = hash;
        hash ^= state();
        int captured = squares[to] == 0 ? 0 : take(to);
        undo[made++] = captured + 8 | castling << 8 | passing + 1 << 16;
        int piece = take(from);
        put(to, Moves.promoted(move) == 0 ? piece : side * Moves.promoted(move));
        if (Moves.isPassing(move)) {
            take(to - 16 * side);
        } else if (Moves.isCastling(move)) {
            boolean isShort = to > from;
            put(isShort ? to - 1 : to + 1, take(isShort ? to + 1 : to - 2));
        }
        passing = Math.abs(piece) == PAWN && Math.abs(to - from) == 32 ? (from + to) / 2 : NONE;
        castling &= ~(lost(from) | lost(to));
        side = -side;
        hash ^= state();
    }

    /** Takes the last move back. */
    void unmake(int move) {
        int from = Moves.from(move);
        int to = Moves.to(move);
        int kept = undo[--made];
        side = -side;
        int piece = take(to);
        put(from, Moves.promoted(move) == 0 ? piece : side * PAWN);
        int captured = (kept & 0xFF) - 8;
        if (captured != 0) {
            put(to, captured);
        }
        if (Moves.isPassing(move)) {
            put(to - 16 * side, -side * PAWN);
        } else if (Moves.isCastling(move)) {
            boolean isShort = to > from;
            put(isShort ? to + 1 : to - 2, take(isShort ? to - 1 : to + 1));
        }
        castling = kept >> 8 & 0xFF;
        passing = (kept >> 16) - 1;
        hash = before[made];
    }

    /** Whether the position was there before in this line. */
    boolean isRepeated() {
        for (int at = made - 2; at >= 0; at -= 2) {
            if (before[at] == hash) {
                return true;
            }
        }
        return false;
    }

    /** Castling that is lost when something leaves or takes this square. */
    private static int lost(int square) {
        switch (square) {
            case 0x04:
                return 3;
            case 0x07:
                return 1;
            case 0x00:
                return 2;
            case 0x74:
                return 12;
            case 0x77:
                return 4;
            case 0x70:
                return 8;
            default:
                return 0;
        }
    }

    /** Whether the king of this side could be taken. */
    boolean isChecked(int own) {
        return isAttacked(kings[own == WHITE ? 1 : 0], -own);
    }

    /** Whether a piece of side `by` reaches the square. */
    boolean isAttacked(int square, int by) {
        for (int file = -1; file <= 1; file += 2) {
            int pawn = square - 16 * by + file;
            if ((pawn & BESIDE) == 0 && squares[pawn] == by * PAWN) {
                return true;
            }
        }
        return isStepped(square, by * KNIGHT, KNIGHT_STEPS)
                || isStepped(square, by * KING, ALL_STEPS)
                || isSlid(square, by * BISHOP, by * QUEEN, DIAGONALS)
                || isSlid(square, by * ROOK, by * QUEEN, LINES);
    }

    private boolean isStepped(int square, int piece, int[] steps) {
        for (int step : steps) {
            if ((square + step & BESIDE) == 0 && squares[square + step] == piece) {
                return true;
            }
        }
        return false;
    }

    private boolean isSlid(int square, int piece, int queen, int[] steps) {
        for (int step : steps) {
            int at = square + step;
            while ((at & BESIDE) == 0 && squares[at] == 0) {
                at += step;
            }
            if ((at & BESIDE) == 0 && (squares[at] == piece || squares[at] == queen)) {
                return true;
            }
        }
        return false;
    }

    /** `e4` as a square. */
    static int square(String name) {
        int square = 16 * (name.charAt(1) - '1') + name.charAt(0) - 'a';
        if ((square & ~0x77) != 0) {
            throw new IllegalArgumentException("no square: " + name);
        }
        return square;
    }

    static String name(int square) {
        return "" + (char) ('a' + (square & 7)) + (char) ('1' + (square >> 4));
    }
}
