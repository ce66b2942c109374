package workloads;

import android.util.LruCache;

/**
 * The best move of a position: alpha-beta, deeper and deeper, with captures to their end.
 *
 * <p>What was found of a position is kept, so that another order of the same moves is not searched again.
 */
final class Search {
    static final int MATE = 30_000;
    private static final int FAR = 1_000_000;
    private static final int PLIES_MAX = 64;
    /** Positions that are kept, and the depth from which on it pays. */
    private static final int KEPT_MAX = 50_000;
    private static final int KEPT_DEPTH_MIN = 2;
    private static final int EXACT = 0;
    private static final int AT_LEAST = 1;
    private static final int AT_MOST = 2;

    /** What was found of a position. */
    private static final class Kept {
        private final int depth;
        private final int score;
        private final int bound;
        private final int move;

        private Kept(int depth, int score, int bound, int move) {
            this.depth = depth;
            this.score = score;
            this.bound = bound;
            this.move = move;
        }
    }

    private final Board board;
    private final Moves[] plies = new Moves[PLIES_MAX];
    private final LruCache<Long, Kept> kept = new LruCache<>(KEPT_MAX);
    /** Moves that refuted their neighbours at each ply. */
    private final int[] killers = new int[PLIES_MAX];
    /** Positions that were looked at. */
    long nodes;
    /** The best move, 0 where there is none, and what it is worth to who moves, in hundredths of a pawn. */
    int best;
    int score;

    Search(Board board) {
        this.board = board;
        for (int ply = 0; ply < PLIES_MAX; ply++) {
            plies[ply] = new Moves();
        }
    }

    /** Searches so many half-moves deep. */
    void run(int depth) {
        for (int deep = 1; deep <= depth; deep++) {
            score = search(deep, 0, -FAR, FAR);
            if (Math.abs(score) > MATE - PLIES_MAX) {
                return;
            }
        }
    }

    private int search(int depth, int ply, int alpha, int beta) {
        nodes++;
        if (ply > 0 && board.isRepeated()) {
            return 0;
        }
        boolean isChecked = board.isChecked(board.side);
        int left = isChecked ? depth + 1 : depth;
        if (left <= 0 || ply >= PLIES_MAX - 16) {
            return quiet(ply, alpha, beta);
        }
        Kept known = left >= KEPT_DEPTH_MIN ? kept.get(board.hash) : null;
        if (known != null && known.depth >= left && ply > 0 && isUsable(known, alpha, beta)) {
            return known.score;
        }
        Moves list = plies[ply];
        list.generate(board, false);
        int[] worth = order(list, known == null ? 0 : known.move, killers[ply]);
        int from = alpha;
        int found = -FAR;
        int move = 0;
        for (int at = 0; at < list.count; at++) {
            int tried = next(list, worth, at);
            board.make(tried);
            if (board.isChecked(-board.side)) {
                board.unmake(tried);
                continue;
            }
            int value = -search(left - 1, ply + 1, -beta, -Math.max(from, found));
            board.unmake(tried);
            if (value > found) {
                found = value;
                move = tried;
            }
            if (found >= beta) {
                killers[ply] = tried;
                break;
            }
        }
        if (move == 0) {
            // No move: mate, the sooner the worse, or stalemate.
            return isChecked ? ply - MATE : 0;
        }
        if (ply == 0) {
            best = move;
        }
        if (left >= KEPT_DEPTH_MIN && Math.abs(found) < MATE - PLIES_MAX) {
            int bound = found >= beta ? AT_LEAST : found > alpha ? EXACT : AT_MOST;
            kept.put(board.hash, new Kept(left, found, bound, move));
        }
        return found;
    }

    private static boolean isUsable(Kept known, int alpha, int beta) {
        return known.bound == EXACT
                || known.bound == AT_LEAST && known.score >= beta
                || known.bound == AT_MOST && known.score <= alpha;
    }

    /** Captures to their end: a position is worth nothing in the middle of an exchange. */
    private int quiet(int ply, int alpha, int beta) {
        nodes++;
        int found = Evaluation.of(board);
        if (found >= beta || ply >= PLIES_MAX - 1) {
            return found;
        }
        Moves list = plies[ply];
        list.generate(board, true);
        int[] worth = order(list, 0, 0);
        for (int at = 0; at < list.count && found < beta; at++) {
            int tried = next(list, worth, at);
            board.make(tried);
            if (!board.isChecked(-board.side)) {
                found = Math.max(found, -quiet(ply + 1, -beta, -Math.max(alpha, found)));
            }
            board.unmake(tried);
        }
        return found;
    }

    /** What each move promises: the one that was best, then the largest gain by the smallest piece. */
    private int[] order(Moves list, int first, int killer) {
        int[] worth = new int[list.count];
        for (int at = 0; at < list.count; at++) {
            int move = list.moves[at];
            int taken = Math.abs(board.squares[Moves.to(move)]);
            int by = Math.abs(board.squares[Moves.from(move)]);
            worth[at] = taken * 100 + Moves.promoted(move) * 90 - (taken > 0 ? by : 0);
            worth[at] += move == first ? 10_000 : move == killer ? 50 : 0;
        }
        return worth;
    }

    /** The most promising of those that are left, moved to place `at`. */
    private static int next(Moves list, int[] worth, int at) {
        int best = at;
        for (int other = at + 1; other < list.count; other++) {
            best = worth[other] > worth[best] ? other : best;
        }
        int move = list.moves[best];
        list.moves[best] = list.moves[at];
        list.moves[at] = move;
        int value = worth[best];
        worth[best] = worth[at];
        worth[at] = value;
        return move;
    }
}
