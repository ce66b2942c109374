package workloads;

/** Moves as numbers, and all of a position. */
final class Moves {
    /** The most that a position has is 218. */
    static final int MAX = 256;
    private static final int PASSING = 1 << 18;
    private static final int CASTLING = 1 << 19;

    /** The moves, `count` of them. */
    final int[] moves = new int[MAX];
    int count;

    static int from(int move) {
        return move & 0x7F;
    }

    static int to(int move) {
        return move >> 7 & 0x7F;
    }

    /** The piece that a pawn becomes; 0: none. */
    static int promoted(int move) {
        return move >> 14 & 7;
    }

    static boolean isPassing(int move) {
        return (move & PASSING) != 0;
    }

    static boolean isCastling(int move) {
        return (move & CASTLING) != 0;
    }

    /** `e2e4`, `e7e8q`. */
    static String name(int move) {
        int piece = promoted(move);
        String letter = piece == 0 ? "" : String.valueOf(Character.toLowerCase(Board.LETTERS.charAt(piece)));
        return Board.name(from(move)) + Board.name(to(move)) + letter;
    }

    /** All moves but that some leave the king to be taken; `onlyTaking`: captures and promotions. */
    void generate(Board board, boolean onlyTaking) {
        count = 0;
        for (int from = 0; from < 128; from++) {
            if ((from & Board.BESIDE) != 0 || board.squares[from] * board.side <= 0) {
                continue;
            }
            switch (Math.abs(board.squares[from])) {
                case Board.PAWN:
                    pawn(board, from, onlyTaking);
                    break;
                case Board.KNIGHT:
                    piece(board, from, Board.KNIGHT_STEPS, false, onlyTaking);
                    break;
                case Board.BISHOP:
                    piece(board, from, Board.DIAGONALS, true, onlyTaking);
                    break;
                case Board.ROOK:
                    piece(board, from, Board.LINES, true, onlyTaking);
                    break;
                case Board.QUEEN:
                    piece(board, from, Board.ALL_STEPS, true, onlyTaking);
                    break;
                default:
                    piece(board, from, Board.ALL_STEPS, false, onlyTaking);
                    if (!onlyTaking) {
                        castle(board, from);
                    }
            }
        }
    }

    private void piece(Board board, int from, int[] steps, boolean slides, boolean onlyTaking) {
        for (int step : steps) {
            int to = from + step;
            while ((to & Board.BESIDE) == 0 && board.squares[to] == 0) {
                if (!onlyTaking) {
                    add(from, to, 0);
                }
                to = slides ? to + step : Board.BESIDE;
            }
            if ((to & Board.BESIDE) == 0 && board.squares[to] * board.side < 0) {
                add(from, to, 0);
            }
        }
    }

    private void pawn(Board board, int from, boolean onlyTaking) {
        int ahead = from + 16 * board.side;
        boolean isLast = ahead >> 4 == (board.side == Board.WHITE ? 7 : 0);
        boolean isFirst = from >> 4 == (board.side == Board.WHITE ? 1 : 6);
        if (board.squares[ahead] == 0) {
            if (isLast) {
                promote(from, ahead);
            } else if (!onlyTaking) {
                add(from, ahead, 0);
                int further = ahead + 16 * board.side;
                if (isFirst && board.squares[further] == 0) {
                    add(from, further, 0);
                }
            }
        }
        for (int file = -1; file <= 1; file += 2) {
            int to = ahead + file;
            if ((to & Board.BESIDE) != 0) {
                continue;
            }
            if (to == board.passing) {
                add(from, to, PASSING);
            } else if (board.squares[to] * board.side < 0 && isLast) {
                promote(from, to);
            } else if (board.squares[to] * board.side < 0) {
                add(from, to, 0);
            }
        }
    }

    private void promote(int from, int to) {
        for (int piece = Board.QUEEN; piece >= Board.KNIGHT; piece--) {
            add(from, to, piece << 14);
        }
    }

    private void castle(Board board, int from) {
        int bits = board.side == Board.WHITE ? board.castling & 3 : board.castling >> 2;
        if (bits == 0 || board.isAttacked(from, -board.side)) {
            return;
        }
        boolean isFreeShort = board.squares[from + 1] == 0 && board.squares[from + 2] == 0;
        if ((bits & 1) != 0 && isFreeShort && !board.isAttacked(from + 1, -board.side)) {
            add(from, from + 2, CASTLING);
        }
        boolean isFreeLong =
                board.squares[from - 1] == 0 && board.squares[from - 2] == 0 && board.squares[from - 3] == 0;
        if ((bits & 2) != 0 && isFreeLong && !board.isAttacked(from - 1, -board.side)) {
            add(from, from - 2, CASTLING);
        }
    }

    private void add(int from, int to, int more) {
        moves[count++] = from | to << 7 | more;
    }
}
