/* Ranges of integer operations, for the emitters: what an index can be decides which checks they leave out. The result
 * of a product or a quotient is given only where no operand is negative. */
#include "tile/tile.h"

bool tile_operate_range(tile_operator op, const int64_t a[2], const int64_t b[2], int64_t *low, int64_t *high) {
    const int64_t limit = (int64_t)1 << 60;
    switch (op) {
    case TILE_ADD:
        *low = a[0] + b[0], *high = a[1] + b[1];
        return true;
    case TILE_SUB:
        *low = a[0] - b[1], *high = a[1] - b[0];
        return true;
    case TILE_MIN:
        *low = min_i64(a[0], b[0]), *high = min_i64(a[1], b[1]);
        return true;
    case TILE_MAX:
        *low = max_i64(a[0], b[0]), *high = max_i64(a[1], b[1]);
        return true;
    case TILE_MUL:
        if (a[0] < 0 || b[0] < 0 || (b[1] && a[1] > limit / b[1])) return false;
        *low = a[0] * b[0], *high = a[1] * b[1];
        return true;
    case TILE_DIV:
        if (a[0] < 0 || b[0] <= 0) return false;
        *low = a[0] / b[1], *high = a[1] / b[0];
        return true;
    case TILE_CEIL_DIV:
        if (a[0] < 0 || b[0] <= 0) return false;
        *low = ceil_div(a[0], b[1]), *high = ceil_div(a[1], b[0]);
        return true;
    case TILE_MOD:
        if (a[0] < 0 || b[0] <= 0) return false;
        *low = 0, *high = min_i64(a[1], b[1] - 1);
        return true;
    default:
        return false;
    }
}
