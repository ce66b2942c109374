package workloads;

/** The sums of a picture's brightness from its corner to each pixel: the sum of any rectangle is four look-ups. */
final class Integral {
    final int width;
    final int height;
    private final int[] sums;

    /** Of brightnesses from 0 to 255, row by row. */
    Integral(int[] gray, int width, int height) {
        this.width = width;
        this.height = height;
        this.sums = new int[(width + 1) * (height + 1)];
        for (int y = 0; y < height; y++) {
            int row = 0;
            for (int x = 0; x < width; x++) {
                row += gray[y * width + x];
                sums[(y + 1) * (width + 1) + x + 1] = sums[y * (width + 1) + x + 1] + row;
            }
        }
    }

    /** Of the rectangle with this corner. */
    int sum(int x, int y, int w, int h) {
        int above = y * (width + 1) + x;
        int below = above + h * (width + 1);
        return sums[below + w] - sums[below] - sums[above + w] + sums[above];
    }
}
