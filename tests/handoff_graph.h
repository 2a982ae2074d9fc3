/* Random graphs of the library's ops and of programs of its own, for tests of hand-offs: views, states, caches, stores
 * under conditions, in loops, that overlap, of live values; operands that several nodes fill. Include cmocka before. */
#ifndef HANDOFF_GRAPH_H
#define HANDOFF_GRAPH_H

#include "device_ops.h"
#include "graph_make.h"

static uint32_t dice_state;
static uint32_t dice(uint32_t sides) {
    dice_state = dice_state * 1664525u + 1013904223u;
    return (dice_state >> 8) % sides;
}

static const char random_tiles[] =
    "tile scale[N, B = 16](x: in f32[M, N], y: out f32[M, N]) over (m in M, i in ceil(N / B)) {\n"
    "    y[m, i*B : +B] = x[m, i*B : +B] * 0.5 }\n"
    "tile half[N](x: in f32[M, N], y: out f32[M, N]) over (m in M) {\n"
    "    if m % 2 == 0 { y[m, :] = x[m, :] * 0.5 } else { y[m, :] = x[m, :] * 0.25 } }\n"
    "tile loop[N](x: in f32[M, N], y: out f32[M, N]) over (m in M) {\n"
    "    for i in N { y[m, i : +1] = x[m, i : +1] * 0.5 } }\n"
    "tile two_stores[N](x: in f32[M, N], y: out f32[M, N]) over (m in M) {\n"
    "    y[m, :] = x[m, :]\n"
    "    y[m, 0 : +1] = x[m, 0 : +1] * 0.5 }\n"
    "tile turned[M, N](x: in f32[M, N], y: out f32[N, M]) over (n in N) { y[n, :] = x[:, n] }\n"
    "tile limited[N, B = 16](x: in f32[M, N], y: out f32[M, N]) over (m in M, i in ceil(N / B)) {\n"
    "    y[m, i*B - 3 : +B + 3 < i*B + B] = x[m, i*B - 3 : +B + 3] * 0.5 }\n"
    "tile shifted[N, B = 16](x: in f32[M, N], y: out f32[M, N]) over (m in M, i in ceil(N / B) + 1) {\n"
    "    y[m, i*B - 5 : +B] = x[m, i*B - 5 : +B] * 0.5 }\n"
    "tile live_part[N](x: in f32[M, N], pos: live i32, y: out f32[M, N]) over (m in M) {\n"
    "    y[m, 0 : +N < pos % N] = x[m, 0 : +N] * 0.5 }\n"
    "tile live_grid[N](x: in f32[M, N], pos: live i32, y: out f32[M, N]) over (m in min(M, pos)) {\n"
    "    y[m, :] = x[m, :] * 0.5 }\n"
    "tile more[N](x: in f32[M, N], s: inout f32[M, N]) over (m in M) { s[m, :] += x[m, :] * 0.25 }\n"
    "tile all_of[M, N](x: in f32[M, N], y: out f32[M, N]) over (m in M) {\n"
    "    y[m, :] = x[m, :] + sum(reshape(x, M * N), 0) * 0.01 }\n"
    "tile eight[N, B = 16](a: in f32[M, N], b: in f32[M, N], c: in f32[M, N], d: in f32[M, N], e: in f32[M, N],\n"
    "    f: in f32[M, N], g: in f32[M, N], h: in f32[M, N], y: out f32[M, N]) over (m in M, i in ceil(N / B)) {\n"
    "    y[m, i*B : +B] = a[m, i*B : +B] + b[m, i*B : +B] + c[m, i*B : +B] + d[m, i*B : +B] - e[m, i*B : +B] -\n"
    "    f[m, i*B : +B] - g[m, i*B : +B] - h[m, i*B : +B] }\n"
    "tile deep[N](x: in f32[M, N], y: out f32[M, N]) over (m in M) {\n"
    "    shared a: f32[1, N] pages\n"
    "    shared c: f32[1, N]\n"
    "    barrier full (loader)\n"
    "    barrier made (consumer)\n"
    "    role loader { expect(full, N*4); copy(a, x[m : +1, :], full) }\n"
    "    role consumer { wait(full, 0); c = a * 0.5; arrive(made) }\n"
    "    role storer { wait(made, 0); store(y[m : +1, :], c) } }\n"
    "tile put[N](x: in f32[M, N], pos: live i32, s: out f32[S, N]) over (m in M) { s[pos + m, :] = x[m, :] }\n"
    "tile take[N](s: in f32[S, N], x: in f32[M, N], pos: live i32, y: out f32[M, N]) over (m in M) {\n"
    "    t = f32[1, N](0)\n"
    "    for k in pos + m + 1 { t = t + s[k : +1, :] }\n"
    "    y[m, :] = x[m, :] - reshape(t, N) * 0.01 }\n"
    "tile three[N](a: in f32[M, N], b: in f32[M, N], c: in f32[M, N], y: out f32[M, N], z: out f32[M, N]) over (m in "
    "M) {\n"
    "    y[m, :] = a[m, :] + b[m, :] * 0.5; z[m, :] = b[m, :] - c[m, :] }\n";

enum { MOST_MADE = 60 };
typedef struct made {
    mt_graph *g;
    const mt_tile *file;
    mt_live pos;
    mt_tensor tensor[MOST_MADE];
    int rows[MOST_MADE], columns[MOST_MADE], count;
    mt_tensor state[3];
    int states, nodes;
} made;

static mt_tensor add_made(made *r, mt_tensor t, int rows, int columns) {
    if (r->count < MOST_MADE) {
        r->tensor[r->count] = t;
        r->rows[r->count] = rows;
        r->columns[r->count++] = columns;
    }
    return t;
}

/* One of the tensors; of this shape, if rows > 0: made anew when there is none. */
static int pick(made *r, int rows, int columns) {
    for (int tries = 0; tries < 20 && r->count; tries++) {
        const int t = (int)dice((uint32_t)r->count);
        if (!rows || (r->rows[t] == rows && r->columns[t] == columns)) return t;
    }
    char name[20];
    snprintf(name, sizeof name, "x%d", tensor_count);
    add_made(r, add_matrix(r->g, MT_INPUT, "f32", name, rows, columns), rows, columns);
    return r->count - 1;
}

/* Where a node's result goes: a temporary of its own, an output, a part of a temporary that the nodes before and after
 * fill, or a temporary written before (twice written). */
static bool add_result(made *r, mt_operand *operands, int count, const char *name, int rows, int columns) {
    char text_of[20];
    int64_t extent[2] = {rows, columns};
    mt_tensor t;
    snprintf(text_of, sizeof text_of, "y%d", tensor_count);
    switch (dice(8)) {
    case 0:
        t = add_matrix(r->g, MT_OUTPUT, "f32", text_of, rows, columns);
        break;
    case 1: { /* rows of a larger one, whose other rows come from another node */
        mt_tensor whole, other;
        const int from = pick(r, rows, columns);
        extent[0] = 2 * rows;
        OK(mt_graph_tensor(r->g, MT_TEMP, NULL, "f32", 2, extent, &whole, &error));
        OK(mt_graph_slice(r->g, whole, 0, 0, rows, &t, &error));
        OK(mt_graph_slice(r->g, whole, 0, rows, 2 * rows, &other, &error));
        OWN_NODE(r->g, r->file, "scale", MT_OPERAND("x", r->tensor[from]), MT_OPERAND("y", other));
        operands[count] = (mt_operand){.name = name, .kind = MT_IS_TENSOR, .tensor = t};
        add_made(r, whole, 2 * rows, columns);
        return true;
    }
    default:
        OK(mt_graph_tensor(r->g, MT_TEMP, NULL, "f32", 2, extent, &t, &error));
    }
    operands[count] = (mt_operand){.name = name, .kind = MT_IS_TENSOR, .tensor = t};
    add_made(r, t, rows, columns);
    return true;
}

static void add_random_node(made *r) {
    static const char *const own[] = {"scale",   "half",    "loop",      "two_stores", "turned",
                                      "limited", "shifted", "live_part", "live_grid",  "all_of"};
    static const char *const two[] = {"add", "silu_mul"};
    mt_operand o[16];
    int count = 0;
    char name[20];
    r->nodes++;
    int a = pick(r, 0, 0);
    const int rows = r->rows[a], columns = r->columns[a];
    snprintf(name, sizeof name, "w%d", tensor_count);
#define GIVE(n, t) o[count++] = (mt_operand)MT_OPERAND(n, t)
    switch (dice(15)) {
    case 0:
    case 1: {
        const char *program = own[dice(COUNT_OF(own))];
        /* what is not written reads as anything: only whoever writes all is read by others */
        const bool part = !strncmp(program, "live", 4);
        GIVE("x", r->tensor[a]);
        if (part) {
            if (!r->states) return;
            o[count++] = (mt_operand)MT_OPERAND_LIVE("pos", r->pos);
            snprintf(name, sizeof name, "p%d", tensor_count);
            GIVE("y", add_made(r, add_matrix(r->g, MT_STATE, "f32", name, rows, columns), rows, columns));
        } else if (!strcmp(program, "turned"))
            add_result(r, o, count++, "y", columns, rows);
        else
            add_result(r, o, count++, "y", rows, columns);
        make_node(r->g, r->file, program, o, (size_t)count);
        return;
    }
    case 2:
    case 3: {
        const char *program = two[dice(COUNT_OF(two))];
        const int b = pick(r, rows, columns);
        GIVE("a", r->tensor[a]);
        GIVE("b", r->tensor[b]);
        add_result(r, o, count++, "y", rows, columns);
        make_node(r->g, NULL, program, o, (size_t)count);
        return;
    }
    case 4:
    case 5: {
        const int n = (int[]){8, 16, 40, 65, 128}[dice(5)];
        GIVE("x", r->tensor[a]);
        GIVE("w", add_matrix(r->g, MT_WEIGHT, "bf16", name, n, columns));
        o[count++] = (mt_operand)MT_OPERAND_TYPE("P", "bf16");
        const bool adds = dice(2);
        if (adds) GIVE("r", r->tensor[pick(r, rows, n)]);
        add_result(r, o, count++, "y", rows, n);
        make_node(r->g, NULL, adds ? "linear_add" : "linear", o, (size_t)count);
        return;
    }
    case 6:
        GIVE("x", r->tensor[a]);
        GIVE("g", add_matrix(r->g, MT_INPUT, "f32", name, columns, 0));
        o[count++] = (mt_operand)MT_OPERAND_FLOAT("eps", 1e-3f);
        add_result(r, o, count++, "y", rows, columns);
        make_node(r->g, NULL, "rmsnorm", o, (size_t)count);
        return;
    case 7: /* a state, which many nodes write and read */
        if (r->states < 3) {
            snprintf(name, sizeof name, "s%d", tensor_count);
            r->state[r->states++] = add_made(r, add_matrix(r->g, MT_STATE, "f32", name, rows, columns), rows, columns);
        } else {
            for (int s = r->count - 1; s >= 0; s--)
                if (r->rows[s] == rows && r->columns[s] == columns &&
                    (r->tensor[s] == r->state[0] || r->tensor[s] == r->state[1] || r->tensor[s] == r->state[2])) {
                    GIVE("x", r->tensor[a == s ? pick(r, rows, columns) : a]);
                    if (o[0].tensor == r->tensor[s]) return;
                    GIVE("s", r->tensor[s]);
                    make_node(r->g, r->file, "more", o, (size_t)count);
                    return;
                }
        }
        return;
    case 8: { /* views */
        mt_tensor t;
        const uint32_t how = dice(3);
        if (how == 0 && rows > 1) {
            OK(mt_graph_slice(r->g, r->tensor[a], 0, 1, rows, &t, &error));
            add_made(r, t, rows - 1, columns);
        } else if (how == 1 && columns > 9) {
            const int64_t begin = dice(8);
            OK(mt_graph_slice(r->g, r->tensor[a], 1, begin, columns, &t, &error));
            add_made(r, t, rows, columns - (int)begin);
        } else if (how == 2 && columns % 2 == 0 && rows <= 8) {
            mt_error refused; /* parts of rows do not lie together */
            if (mt_graph_reshape(r->g, r->tensor[a], 2, (int64_t[]){2 * rows, columns / 2}, &t, &refused) == MT_OK)
                add_made(r, t, 2 * rows, columns / 2);
        }
        return;
    }
    case 9:
        GIVE("a", r->tensor[a]);
        GIVE("b", r->tensor[pick(r, rows, columns)]);
        GIVE("c", r->tensor[pick(r, rows, columns)]);
        add_result(r, o, count++, "y", rows, columns);
        add_result(r, o, count++, "z", rows, columns);
        make_node(r->g, r->file, "three", o, (size_t)count);
        return;
    case 10: {
        static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
        for (int k = 0; k < 8; k++) GIVE(names[k], r->tensor[pick(r, rows, columns)]);
        add_result(r, o, count++, "y", rows, columns);
        make_node(r->g, r->file, "eight", o, (size_t)count);
        return;
    }
    case 12: { /* of level 2, which copies from a tensor that lies as it should */
        mt_tensor whole, y;
        if (columns % 16) return;
        whole = OWN_NODE(r->g, r->file, "scale", MT_OPERAND("x", r->tensor[a]));
        y = OWN_NODE(r->g, r->file, "deep", MT_OPERAND("x", whole));
        add_made(r, whole, rows, columns);
        add_made(r, y, rows, columns);
        return;
    }
    case 11: { /* a cache */
        const mt_tensor cache = add_matrix(r->g, MT_STATE, "f32", name, rows + 110, columns);
        for (int k = 0; k < 2; k++) {
            OWN_NODE(r->g, r->file, "put", MT_OPERAND("x", r->tensor[pick(r, rows, columns)]),
                     MT_OPERAND_LIVE("pos", r->pos), MT_OPERAND("s", cache));
            count = 0;
            GIVE("s", cache);
            GIVE("x", r->tensor[pick(r, rows, columns)]);
            o[count++] = (mt_operand)MT_OPERAND_LIVE("pos", r->pos);
            add_result(r, o, count++, "y", rows, columns);
            make_node(r->g, r->file, "take", o, (size_t)count);
        }
        return;
    }
    default:
        GIVE("x", r->tensor[a]);
        add_result(r, o, count++, "y", rows, columns);
        make_node(r->g, NULL, "relu", o, (size_t)count);
    }
#undef GIVE
}

/* All that nobody reads is read by an output, or it would be dropped. */
static mt_graph *random_graph(const mt_tile *file, uint32_t seed) {
    made r = {.g = make_graph(file), .file = file};
    dice_state = op_random = seed * 2654435761u + 1;
    OK(mt_graph_live(r.g, "pos", 0, 100, &r.pos, &error));
    const int most = 5 + (int)dice(25);
    for (int i = 0; i < 2; i++) pick(&r, i ? 1 + (int)dice(5) : 1, (int[]){8, 24, 64, 100, 256, 512}[dice(6)]);
    while (r.nodes < most && r.count < MOST_MADE - 8) add_random_node(&r);
    for (int k = 0; k < 4; k++) {
        char name[20];
        const int t = k ? pick(&r, 0, 0) : r.count - 1;
        snprintf(name, sizeof name, "end%d", k);
        OWN_NODE(r.g, file, "scale", MT_OPERAND("x", r.tensor[t]),
                 MT_OPERAND("y", add_matrix(r.g, MT_OUTPUT, "f32", name, r.rows[t], r.columns[t])));
    }
    return r.g;
}

#endif
