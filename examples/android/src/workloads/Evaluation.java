package workloads;

/** What a position is worth without a look ahead: pieces, and where they stand. */
final class Evaluation {
    private static final int[] WORTH = {0, 100, 320, 330, 500, 900, 0};
    /** What a piece gains for each step towards the middle, and a pawn for each forward. */
    private static final int[] MIDDLE = {0, 2, 8, 5, 1, 1, -6};
    private static final int PAWN_STEP = 4;
    private static final int TWO_BISHOPS = 30;
    private static final int DOUBLED_PAWN = 12;
    /** Below so much material the king belongs in the middle. */
    private static final int ENDGAME = 1_400;

    private Evaluation() {}

    /** In hundredths of a pawn, for who moves. */
    static int of(Board board) {
        int score = 0;
        int material = 0;
        int bishops = 0;
        int whiteKing = 0;
        int blackKing = 0;
        int[] pawns = new int[16];
        for (int square = 0; square < 128; square++) {
            int piece = (square & Board.BESIDE) == 0 ? board.squares[square] : 0;
            if (piece == 0) {
                continue;
            }
            int sign = piece > 0 ? 1 : -1;
            int kind = Math.abs(piece);
            material += kind == Board.PAWN ? 0 : WORTH[kind];
            score += sign * (WORTH[kind] + MIDDLE[kind] * middle(square));
            if (kind == Board.PAWN) {
                int rank = square >> 4;
                score += sign * PAWN_STEP * (sign > 0 ? rank - 1 : 6 - rank);
                int file = (square & 7) + (sign > 0 ? 0 : 8);
                score -= pawns[file]++ > 0 ? sign * DOUBLED_PAWN : 0;
            } else if (kind == Board.BISHOP) {
                bishops += sign > 0 ? 1 : 16;
            } else if (kind == Board.KING) {
                whiteKing = sign > 0 ? middle(square) : whiteKing;
                blackKing = sign < 0 ? middle(square) : blackKing;
            }
        }
        score += ((bishops & 15) >= 2 ? TWO_BISHOPS : 0) - (bishops >= 32 ? TWO_BISHOPS : 0);
        if (material < 2 * ENDGAME) {
            score -= 3 * MIDDLE[Board.KING] * (whiteKing - blackKing);
        }
        return score * board.side;
    }

    /** From 0 in a corner to 6 in the middle. */
    private static int middle(int square) {
        int file = square & 7;
        int rank = square >> 4;
        return Math.min(file, 7 - file) + Math.min(rank, 7 - rank);
    }
}
