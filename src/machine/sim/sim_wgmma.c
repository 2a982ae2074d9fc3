/* wgmma. Each warp computes its own 16 of the 64 rows. A wgmma is done when a wait says so, and no sooner: its operands
 * are read, and its sums written, as late as they may be. Whether it may read them is looked at when it is issued; from
 * then until it has been waited for nobody may write there. */
#include "machine/sim/sim.h"

static sim_warp *this_warp(void) { return sim_now->warp; }

static float half_value(uint16_t code, bool f16) {
    const uint32_t bits = (uint32_t)code << 16;
    float value;
    memcpy(&value, &bits, 4);
    return f16 ? sim_chip_calls.half[code] : value;
}

/* Where byte `at` of the matrix lies, as atoms are swizzled. */
static uint32_t atom_place(uint64_t matrix, uint32_t at) {
    const uint32_t offset = ((uint32_t)(matrix & 0x3fff) << 4) + at;
    return offset ^ (offset / 128 % 8) << 4;
}

/* `count` elements of a row of 128 bytes, from byte `at` of the matrix on. */
static void read_atom_row(const char *shared, uint64_t matrix, uint32_t at, uint32_t count, bool f16, float *out) {
    for (uint32_t i = 0; i < count; i++) {
        uint16_t code;
        memcpy(&code, shared + atom_place(matrix, at + i * 2), 2);
        out[i] = half_value(code, f16);
    }
}

/* The row of the matrix at which this warp's row, or column, begins. */
static uint32_t left_row(uint32_t row) {
    const uint32_t at = (uint32_t)(this_warp()->number % 4) * 16 + row;
    return at / 8 * 1024 + at % 8 * 128;
}

static void look_at_atoms(const sim_wgmma *g, uint64_t matrix, uint32_t at, uint32_t count, uint32_t tick) {
    for (uint32_t i = 0; i < count; i += 8)
        sim_access_wgmma(sim_now, this_warp(), g->clock, this_warp()->cta->shared + atom_place(matrix, at + i * 2), 16,
                         tick);
}

/* The group's tick. Warps have the same number of groups behind them, or nearly so: one that has none under way and
 * is far behind the others takes their count. */
static uint32_t group_tick(sim_warp *w) {
    sim_cta *cta = w->cta;
    if (!w->wgmma_count && w->wgmma_group + 32 < cta->group_count) w->wgmma_group = cta->group_count - 1;
    while (cta->group_count <= w->wgmma_group) cta->group_tick[cta->group_count++ % SIM_GROUPS] = ++sim_now->ticks;
    if (w->wgmma_group + SIM_GROUPS < cta->group_count)
        sim_report(sim_now, SIM_MISUSE, true, 0, "%s is %u groups of wgmmas behind another warp",
                   sim_who(sim_now, UINT32_MAX, 0).text, cta->group_count - w->wgmma_group);
    return cta->group_tick[w->wgmma_group % SIM_GROUPS];
}

/* A wgmma has been issued: everything that it reads. */
static void look_at_operands(sim_wgmma *g, uint32_t tick) {
    sim_warp *w = this_warp();
    const uint32_t engine = (uint32_t)(w->cta->number * SIM_ACTORS + SIM_TENSOR);
    sim_clock *known = sim_clock_release(sim_now, w, sim_now->lane_number);
    g->clock = sim_clock_with(sim_now, known, engine, (uint32_t)w->number, tick);
    sim_clock_drop(known);
    for (uint32_t row = 0; row < 16 && !g->registers; row++) look_at_atoms(g, g->left, left_row(row), 16, tick);
    for (uint32_t n = 0; n < g->columns && !g->registers; n++)
        look_at_atoms(g, g->right, n / 8 * 1024 + n % 8 * 128, 16, tick);
    for (uint32_t k = 0; k < 16 && g->registers; k++)
        look_at_atoms(g, g->right, k / 8 * 1024 + k % 8 * 128, g->columns, tick);
}

static void finish_wgmma(const sim_wgmma *g) {
    const char *shared = this_warp()->cta->shared;
    float left[16][16], right[16][256]; /* [k][n] */
    for (uint32_t row = 0; row < 16 && !g->registers; row++)
        read_atom_row(shared, g->left, left_row(row), 16, g->f16, left[row]);
    for (int lane = 0; lane < 32 && g->registers; lane++)
        for (int i = 0; i < 4; i++)
            for (int half = 0; half < 2; half++)
                left[lane / 4 + i % 2 * 8][lane % 4 * 2 + half + i / 2 * 8] =
                    half_value((uint16_t)(g->a[lane][i] >> 16 * half), g->f16);
    for (uint32_t n = 0; n < g->columns && !g->registers; n++) {
        float row[16];
        read_atom_row(shared, g->right, n / 8 * 1024 + n % 8 * 128, 16, g->f16, row);
        for (int k = 0; k < 16; k++) right[k][n] = row[k];
    }
    for (uint32_t k = 0; k < 16 && g->registers; k++)
        read_atom_row(shared, g->right, k / 8 * 1024 + k % 8 * 128, g->columns, g->f16, right[k]);
    for (uint32_t n = 0; n < g->columns; n++)
        for (uint32_t row = 0; row < 16; row++) {
            double sum = 0;
            for (int k = 0; k < 16; k++) sum += (double)left[row][k] * (double)right[k][n];
            float *d = &g->d[row % 8 * 4 + n % 8 / 2][n / 8 * 4 + row / 8 * 2 + n % 2];
            *d = (float)(*d + sum);
        }
}

void sim_call_wgmma(float *d, const uint32_t *a, uint64_t left, uint64_t right, uint32_t columns, uint32_t f16) {
    sim_call_begin();
    sim_warp *w = this_warp();
    /* Of a matrix: 1024 bytes between 8 rows, 128-byte swizzle. */
    const uint64_t shape = (uint64_t)64 | (uint64_t)1 << 30;
    if (w->number >= CUDA_WARPS || w->wgmma_count == SIM_WGMMA || (!a && left >> 32 != shape) || right >> 32 != shape)
        sim_report(sim_now, SIM_MISUSE, true, 0, "%s issues a wgmma that the simulator does not have (%s)",
                   sim_who(sim_now, UINT32_MAX, 0).text,
                   sim_place(sim_now, sim_now->lane->instruction, sim_now->lane->line).text);
    sim_wgmma *g = &w->wgmma[w->wgmma_count];
    g->d[sim_now->lane_number] = d;
    if (a) memcpy(g->a[sim_now->lane_number], a, sizeof g->a[0]);
    if (!sim_meet(SIM_MEET_WGMMA, columns << 2 | (a != NULL) << 1 | f16, (uint32_t)(left ^ right << 16), 0xffffffffu))
        return;
    const uint32_t tick = group_tick(w);
    w->wgmma_count++;
    g->clock = NULL;
    g->registers = a != NULL;
    g->left = left;
    g->right = right;
    g->columns = columns;
    g->f16 = f16;
    g->group = w->wgmma_group;
    look_at_operands(g, tick);
    sim_meet_end();
}

void sim_call_wgmma_commit(void) {
    sim_call_begin();
    if (!sim_meet(SIM_MEET_COMMIT, 0, 0, 0xffffffffu)) return;
    this_warp()->wgmma_group++;
    sim_meet_end();
}

void sim_call_wgmma_wait(uint32_t groups) {
    sim_call_begin();
    sim_warp *w = this_warp();
    if (!sim_meet(SIM_MEET_WAIT, groups, 0, 0xffffffffu)) return;
    int done = 0;
    sim_clock *known = NULL;
    for (; done < w->wgmma_count && w->wgmma[done].group + groups < w->wgmma_group; done++) {
        finish_wgmma(&w->wgmma[done]);
        sim_clock_join(sim_now, &known, w->wgmma[done].clock);
        sim_clock_drop(w->wgmma[done].clock);
    }
    for (int lane = 0; lane < 32; lane++) sim_clock_join(sim_now, &w->lane[lane].clock, known);
    sim_clock_drop(known);
    w->wgmma_count -= done;
    memmove(w->wgmma, w->wgmma + done, (size_t)w->wgmma_count * sizeof *w->wgmma);
    sim_meet_end();
}
