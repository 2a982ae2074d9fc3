/* Layouts against brute force: the hardware's fragments as the figures of the PTX ISA say them, the algebra against
 * enumerations of all threads and elements, bank conflicts against a simulation of banks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tile/layout.h"

static layout factor(bool threads, int64_t rows, int64_t columns, bool column_major) {
    const tile_shape s = {2, {rows, columns}};
    return threads ? layout_spatial(&s, column_major) : layout_local(&s, column_major);
}

/* Every thread and local index, there and back. */
static void check_whole(const layout *l) {
    const int64_t count = tile_shape_count(&l->shape);
    int *seen = calloc((size_t)count, sizeof *seen);
    assert_true(layout_valid(l));
    for (int64_t t = 0; t < layout_threads(l); t++)
        for (int64_t i = 0; i < layout_locals(l); i++) {
            int64_t at[TILE_RANK], number = 0, thread, local;
            layout_element(l, t, i, at);
            for (int d = 0; d < l->shape.rank; d++) {
                assert_in_range(at[d], 0, l->shape.extent[d] - 1);
                number = number * l->shape.extent[d] + at[d];
            }
            seen[number]++;
            layout_owner(l, at, &thread, &local);
            assert_int_equal(local, i);
            if (layout_replicas(l) == 1) assert_int_equal(thread, t);
            assert_true(layout_holds(l, t, at, &local));
            assert_int_equal(local, i);
        }
    for (int64_t k = 0; k < count; k++) assert_int_equal(seen[k], layout_replicas(l));
    free(seen);
}

static void check_element(const layout *l, int64_t thread, int64_t local, int64_t row, int64_t column) {
    int64_t at[TILE_RANK];
    layout_element(l, thread, local, at);
    assert_int_equal(at[0], row);
    assert_int_equal(at[1], column);
}

/* PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type", wgmma's "Register Fragments", ldmatrix. */
static void test_hardware(void **state) {
    (void)state;
    const layout a = layout_hardware(LAYOUT_MMA_A), b = layout_hardware(LAYOUT_MMA_B),
                 c = layout_hardware(LAYOUT_MMA_C), wa = layout_hardware(LAYOUT_WGMMA_A),
                 m = layout_hardware(LAYOUT_MATRIX), mt = layout_hardware(LAYOUT_MATRIX_TRANSPOSED);
    for (int lane = 0; lane < 32; lane++) {
        const int group = lane >> 2, in_group = lane % 4;
        for (int i = 0; i < 8; i++) {
            const int row = i < 2 || (i >= 4 && i < 6) ? group : group + 8,
                      column = i < 4 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8;
            check_element(&a, lane, i, row, column);
            for (int warp = 0; warp < 4; warp++) check_element(&wa, warp * 32 + lane, i, warp * 16 + row, column);
        }
        for (int i = 0; i < 4; i++) {
            check_element(&b, lane, i, i < 2 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8, group);
            check_element(&c, lane, i, i < 2 ? group : group + 8, in_group * 2 + (i & 1));
        }
        for (int i = 0; i < 2; i++) {
            check_element(&m, lane, i, lane / 4, lane % 4 * 2 + i);
            check_element(&mt, lane, i, lane % 4 * 2 + i, lane / 4);
        }
    }
    for (int64_t n = 8; n <= 256; n += 8) {
        const layout d = layout_wgmma_accumulator(n);
        check_whole(&d);
        assert_int_equal(layout_threads(&d), 128);
        assert_int_equal(layout_locals(&d), n / 2);
        for (int t = 0; t < 128; t++)
            for (int i = 0; i < n / 2; i++)
                check_element(&d, t, i, t / 32 * 16 + t % 32 / 4 + (i / 2 % 2) * 8, i / 4 * 8 + t % 4 * 2 + i % 2);
    }
    check_whole(&a), check_whole(&b), check_whole(&c), check_whole(&wa), check_whole(&m), check_whole(&mt);
}

/* What attention relies on: an accumulator, seen as 16 columns at a time, is a left operand already. */
static void test_accumulator_is_operand(void **state) {
    (void)state;
    layout acc, operand;
    const layout repeat = factor(false, 1, 8, false), half = factor(false, 1, 4, false),
                 c = layout_hardware(LAYOUT_MMA_C), a = layout_hardware(LAYOUT_MMA_A);
    assert_true(layout_compose(&acc, &repeat, &c));
    assert_true(layout_compose(&operand, &half, &a));
    assert_true(layout_equal(&acc, &operand));
    assert_false(layout_equal(&a, &c));
    const layout wide = layout_wgmma_accumulator(64), wa = layout_hardware(LAYOUT_WGMMA_A);
    assert_true(layout_compose(&operand, &half, &wa));
    assert_true(layout_equal(&wide, &operand));
}

static layout random_layout(unsigned *seed, int rank) {
    layout l = layout_replicated(rank, 1);
    const int factors = 1 + (int)(rand_r(seed) % 4);
    for (int i = 0; i < factors; i++) {
        tile_shape s = {.rank = rank};
        for (int d = 0; d < rank; d++) s.extent[d] = 1 + (int64_t)(rand_r(seed) % 3);
        const bool columns = rand_r(seed) % 2;
        const unsigned kind = rand_r(seed) % 5;
        const layout f = kind == 0  ? layout_replicated(rank, 1 + (int64_t)(rand_r(seed) % 3))
                         : kind < 3 ? layout_spatial(&s, columns)
                                    : layout_local(&s, columns);
        layout next;
        if (layout_compose(&next, &f, &l) && tile_shape_count(&next.shape) * layout_threads(&next) < 4000) l = next;
    }
    return l;
}

static bool same_function(const layout *a, const layout *b) {
    if (layout_threads(a) != layout_threads(b) || layout_locals(a) != layout_locals(b)) return false;
    for (int64_t t = 0; t < layout_threads(a); t++)
        for (int64_t i = 0; i < layout_locals(a); i++) {
            int64_t x[TILE_RANK] = {0}, y[TILE_RANK] = {0};
            layout_element(a, t, i, x);
            layout_element(b, t, i, y);
            if (memcmp(x, y, (size_t)a->shape.rank * sizeof x[0])) return false;
        }
    return true;
}

static void test_algebra(void **state) {
    (void)state;
    unsigned seed = 7;
    for (int round = 0; round < 3000; round++) {
        const int rank = 1 + (int)(rand_r(&seed) % 3);
        const layout outer = random_layout(&seed, rank), inner = random_layout(&seed, rank);
        layout whole, q;
        if (tile_shape_count(&outer.shape) * tile_shape_count(&inner.shape) * layout_threads(&outer) *
                layout_threads(&inner) >
            20000)
            continue;
        check_whole(&outer);
        if (!layout_compose(&whole, &outer, &inner)) continue;
        check_whole(&whole);
        const int64_t threads = layout_threads(&inner), locals = layout_locals(&inner);
        for (int64_t t = 0; t < layout_threads(&whole); t++)
            for (int64_t i = 0; i < layout_locals(&whole); i++) {
                int64_t x[TILE_RANK], y[TILE_RANK], z[TILE_RANK];
                layout_element(&whole, t, i, x);
                layout_element(&outer, t / threads, i / locals, y);
                layout_element(&inner, t % threads, i % locals, z);
                for (int d = 0; d < rank; d++) assert_int_equal(x[d], y[d] * inner.shape.extent[d] + z[d]);
            }
        assert_true(layout_divide(&q, &whole, &inner));
        assert_true(layout_equal(&q, &outer));
        const layout canonical = layout_canonical(&whole), other = random_layout(&seed, rank);
        assert_true(same_function(&canonical, &whole));
        bool same_shape = true;
        for (int d = 0; d < rank; d++) same_shape &= other.shape.extent[d] == outer.shape.extent[d];
        assert_int_equal(layout_equal(&other, &outer), same_shape && same_function(&other, &outer));
        if (layout_divide(&q, &outer, &other)) { /* whatever divides, composes back */
            layout back;
            assert_true(layout_compose(&back, &q, &other));
            assert_true(layout_equal(&back, &outer));
        }
        text t = {0}; /* all of these are products, and say so */
        layout_print(&t, &whole);
        assert_null(strstr(t.data, "along"));
        text_free(&t);
    }
}

static void test_reshape_permute_reduce(void **state) {
    (void)state;
    unsigned seed = 3;
    int reshaped = 0;
    for (int round = 0; round < 2000; round++) {
        const layout l = random_layout(&seed, 2);
        const int order[2] = {1, 0};
        const layout turned = layout_permute(&l, order);
        check_whole(&turned);
        const tile_shape flat = {1, {tile_shape_count(&l.shape)}},
                         more = {3, {l.shape.extent[0], l.shape.extent[1] / 2, 2}};
        layout r;
        for (int k = 0; k < 2; k++) {
            const tile_shape *s = k ? &more : &flat;
            if (tile_shape_count(s) != tile_shape_count(&l.shape) || !layout_reshape(&r, &l, s)) continue;
            reshaped++;
            check_whole(&r);
            for (int64_t t = 0; t < layout_threads(&l); t++)
                for (int64_t i = 0; i < layout_locals(&l); i++) {
                    int64_t x[TILE_RANK], y[TILE_RANK], number = 0;
                    layout_element(&l, t, i, x);
                    layout_element(&r, t, i, y);
                    for (int d = 0; d < s->rank; d++) number = number * s->extent[d] + y[d];
                    assert_int_equal(number, x[0] * l.shape.extent[1] + x[1]);
                }
        }
        for (int d = 0; d < 2; d++) {
            const layout reduced = layout_reduce(&l, d);
            check_whole(&reduced);
            assert_int_equal(layout_threads(&reduced), layout_threads(&l));
            for (int64_t t = 0; t < layout_threads(&l); t++) /* who had a part of it holds it */
                for (int64_t i = 0; i < layout_locals(&l); i++) {
                    int64_t at[TILE_RANK], local;
                    layout_element(&l, t, i, at);
                    at[d] = 0;
                    assert_true(layout_holds(&reduced, t, at, &local));
                }
        }
    }
    assert_true(reshaped > 1000);
}

static void test_follows(void **state) {
    (void)state;
    unsigned seed = 11;
    int64_t place[LAYOUT_MODES];
    int follows = 0, not = 0;
    const layout c = layout_wgmma_accumulator(32), rows = layout_reduce(&c, 1), columns = layout_reduce(&c, 0);
    assert_true(layout_follows(&c, &c, place));
    assert_true(layout_follows(&c, &rows, place));
    assert_true(layout_follows(&c, &columns, place));
    assert_false(layout_follows(&rows, &c, place));
    for (int round = 0; round < 2000; round++) {
        const layout to = random_layout(&seed, 2);
        layout from = rand_r(&seed) % 2 ? random_layout(&seed, 2) : layout_reduce(&to, (int)(rand_r(&seed) % 2));
        bool fits = true, good;
        for (int d = 0; d < 2; d++) fits &= from.shape.extent[d] == 1 || from.shape.extent[d] == to.shape.extent[d];
        if (!fits) continue;
        good = layout_follows(&to, &from, place);
        good ? follows++ : not ++;
        /* By hand: every thread holds what it needs, at one local index for each of its own. */
        bool expected = layout_threads(&from) == layout_threads(&to);
        for (int64_t i = 0; i < layout_locals(&to) && expected; i++) {
            int64_t first = -1;
            for (int64_t t = 0; t < layout_threads(&to) && expected; t++) {
                int64_t at[TILE_RANK], mine = -1, other[TILE_RANK];
                layout_element(&to, t, i, at);
                for (int d = 0; d < 2; d++)
                    if (from.shape.extent[d] == 1) at[d] = 0;
                for (int64_t k = 0; k < layout_locals(&from); k++) {
                    layout_element(&from, t, k, other);
                    if (other[0] == at[0] && other[1] == at[1]) mine = k;
                }
                if (!t) first = mine;
                expected = mine >= 0 && mine == first;
            }
            int64_t sum = 0, rest = i;
            for (int k = 0; k < to.local_modes; rest /= to.local[k++].extent)
                sum += rest % to.local[k].extent * place[k];
            if (good) assert_int_equal(sum, first);
        }
        if (good) assert_true(expected);
    }
    assert_true(follows > 100 && not > 100);
}

static void test_shared(void **state) {
    (void)state;
    const tile_shape shape = {2, {64, 128}};
    for (int width = 32; width <= 128; width *= 2) {
        layout_shared s;
        assert_true(layout_swizzled(&s, &shape, 2, width));
        assert_int_equal(layout_shared_bytes(&s), 64 * 128 * 2);
        char *seen = calloc(1, 64 * 128 * 2);
        for (int64_t r = 0; r < 64; r++)
            for (int64_t c = 0; c < 128; c++) {
                const int64_t byte = layout_shared_place(&s, (int64_t[]){r, c}), per = width / 2,
                              linear = c / per * 64 * width + r * width + c % per * 2;
                /* The PTX ISA's swizzle modes, as patterns of 16-byte chunks: in groups of 128 bytes x 8. */
                const int64_t chunk = linear / 16 % 8, line = linear / 128 % 8,
                              turned = width == 128  ? chunk ^ line
                                       : width == 64 ? chunk ^ (line % 4)
                                                     : chunk ^ (line % 2);
                assert_int_equal(byte, linear / 128 * 128 + turned * 16 + linear % 16);
                assert_false(seen[byte]);
                seen[byte] = 1;
            }
        free(seen);
        assert_int_equal(layout_shared_vector(&s), 8);
    }
    layout_shared s;
    assert_false(layout_swizzled(&s, &(tile_shape){2, {60, 64}}, 2, 128));
    assert_false(layout_swizzled(&s, &(tile_shape){2, {64, 96}}, 2, 128));
    /* The one weight layout of role.h: an atom is a swizzled tile of 8 x 64. */
    assert_true(layout_swizzled(&s, &(tile_shape){2, {8, 64}}, 2, 128));
    for (int64_t n = 0; n < 8; n++)
        for (int64_t k = 0; k < 64; k++)
            assert_int_equal(layout_shared_place(&s, (int64_t[]){n, k}), n * 128 + ((k / 8) ^ n) * 16 + k % 8 * 2);
}

/* Wavefronts, with the banks played through one by one. */
static int slow_wavefronts(const int64_t *address, int bytes) {
    const int at_once = bytes == 16 ? 8 : bytes == 8 ? 16 : 32;
    int sum = 0;
    for (int first = 0; first < 32; first += at_once) {
        int worst = 0;
        for (int bank = 0; bank < 32; bank++) {
            int different = 0;
            for (int64_t word = bank; word < 4096; word += 32) {
                bool used = false;
                for (int l = first; l < first + at_once; l++)
                    used |= word * 4 >= address[l] && word * 4 < address[l] + bytes;
                different += used;
            }
            if (different > worst) worst = different;
        }
        sum += worst;
    }
    return sum;
}

static void test_banks(void **state) {
    (void)state;
    unsigned seed = 5;
    for (int round = 0; round < 300; round++) {
        const int bytes = 4 << rand_r(&seed) % 3;
        int64_t address[32];
        for (int l = 0; l < 32; l++) address[l] = (int64_t)(rand_r(&seed) % (unsigned)(4096 / bytes)) * bytes;
        assert_int_equal(layout_wavefronts(address, 32, bytes), slow_wavefronts(address, bytes));
    }
    /* An operand fragment of 16-bit values from rows of 128 bytes: 8 rows fall on one bank, swizzled or padded none. */
    const tile_shape shape = {2, {16, 64}};
    const layout a = layout_hardware(LAYOUT_MMA_A);
    layout_shared swizzled;
    int least;
    const layout_shared plain = layout_rows(&shape, 2, 0), padded = layout_rows(&shape, 2, 144);
    assert_true(layout_swizzled(&swizzled, &shape, 2, 128));
    assert_int_equal(layout_conflicts(&plain, &a, 2, &least), 8 * 4);
    assert_int_equal(least, 4);
    assert_int_equal(layout_conflicts(&padded, &a, 2, &least), 4);
    assert_int_equal(layout_conflicts(&swizzled, &a, 2, &least), 4);
    /* ldmatrix: 8 rows of 16 bytes at once. */
    int64_t rows[8];
    for (int64_t r = 0; r < 8; r++) rows[r] = layout_shared_place(&plain, (int64_t[]){r, 8});
    assert_int_equal(layout_wavefronts(rows, 8, 16), 8);
    for (int64_t r = 0; r < 8; r++) rows[r] = layout_shared_place(&swizzled, (int64_t[]){r, 8});
    assert_int_equal(layout_wavefronts(rows, 8, 16), 1);
}

static void test_text(void **state) {
    (void)state;
    text t = {0};
    const layout c = layout_hardware(LAYOUT_MMA_C), a = layout_hardware(LAYOUT_MMA_A),
                 b = layout_hardware(LAYOUT_MMA_B);
    layout_print(&t, &c);
    text_string(&t, "\n");
    layout_print(&t, &a);
    text_string(&t, "\n");
    layout_print(&t, &b);
    assert_string_equal(t.data, "local(2, 1).spatial(8, 4).local(1, 2)\n"
                                "column_local(2, 2).spatial(8, 4).local(1, 2)\n"
                                "local(2, 1).column_spatial(4, 8).local(2, 1)");
    text_free(&t);
    layout_picture(&t, &c, NULL);
    assert_non_null(strstr(t.data, "     0      t0.0     t1.0     t2.0     t3.0\n"));
    assert_non_null(strstr(t.data, "    15     t28.2    t29.2    t30.2    t31.2\n"));
    text_free(&t);
    const layout rows = layout_reduce(&c, 1);
    layout_print(&t, &rows);
    assert_string_equal(t.data, "local(2, 1).spatial(8, 1).replicated(4)");
    text_free(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hardware), cmocka_unit_test(test_accumulator_is_operand),
        cmocka_unit_test(test_algebra),  cmocka_unit_test(test_reshape_permute_reduce),
        cmocka_unit_test(test_follows),  cmocka_unit_test(test_shared),
        cmocka_unit_test(test_banks),    cmocka_unit_test(test_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
