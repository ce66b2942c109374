package workloads;

/** A chess program's answer to a position. */
public final class ChessGame {
    /** Kiwipete, which has every kind of move. */
    private static final String POSITION = "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1";
    private static final int SMALL = 3;
    private static final int MEDIUM = 4;
    private static final int LARGE = 5;
    private static final int DEPTH_MAX = 12;
    private static final int PERFT_MAX = 6;

    private ChessGame() {}

    /** `move` is as `e2e4` or `e7e8q`; empty where there is none. `score` is hundredths of a pawn for who moves. */
    public static final class Answer {
        public String move;
        public int score;
        public long nodes;
    }

    public static Answer small() {
        return move(POSITION, SMALL);
    }

    public static Answer medium() {
        return move(POSITION, MEDIUM);
    }

    public static Answer large() {
        return move(POSITION, LARGE);
    }

    /** The best move so many half-moves ahead, 1 to 12, of a position in Forsyth-Edwards notation. */
    public static Answer move(String fen, int depth) {
        if (depth < 1 || depth > DEPTH_MAX) {
            throw new IllegalArgumentException("a depth of " + depth + ", of 1 to " + DEPTH_MAX);
        }
        Search search = new Search(new Board(fen));
        search.run(depth);
        Answer answer = new Answer();
        answer.move = search.best == 0 ? "" : Moves.name(search.best);
        answer.score = search.score;
        answer.nodes = search.nodes;
        return answer;
    }

    /** How many games of so many half-moves, 0 to 6, a position has: the usual test of a move generator. */
    public static long perft(String fen, int depth) {
        if (depth < 0 || depth > PERFT_MAX) {
            throw new IllegalArgumentException("a depth of " + depth + ", of 0 to " + PERFT_MAX);
        }
        return perft(new Board(fen), depth);
    }

    private static long perft(Board board, int depth) {
        if (depth == 0) {
            return 1;
        }
        Moves list = new Moves();
        list.generate(board, false);
        long games = 0;
        for (int at = 0; at < list.count; at++) {
            board.make(list.moves[at]);
            games += board.isChecked(-board.side) ? 0 : perft(board, depth - 1);
            board.unmake(list.moves[at]);
        }
        return games;
    }
}
