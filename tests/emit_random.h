/* Random tile programs whose results are exact, so that any order of sums gives the same numbers: all values are small
 * integers, and what could grow is clamped. r is the grid's index, n a live value, k0 and k1 count loops, x0, x1, ...
 * are tensors that are read, z is one that is read and written, y0, ... are written at the end. */
#ifndef EMIT_RANDOM_H
#define EMIT_RANDOM_H

#include "emit_harness.h"

enum { PARAMS = 11 };

typedef struct random_program {
    text params, tensors, body;
    int param_count, name_count;
    struct {
        tile_shape shape;
        char name[8];
    } variables[32]; /* f32, in scope */
    int variable_count;
    int budget;    /* of nodes */
    bool loops[4]; /* k0, k1, ... that are in scope */
} random_program;

static inline int random_below(int n) { return (int)(random_bits() >> 33) % n; }

static inline int64_t random_extent(void) {
    static const int64_t extents[] = {1, 1, 2, 3, 4, 5, 8, 16, 17, 32, 33};
    return extents[random_below(COUNT_OF(extents))];
}

static inline tile_shape random_shape(int rank) {
    tile_shape s = {.rank = rank};
    for (int d = 0; d < rank; d++) {
        s.extent[d] = random_extent();
        if (tile_shape_count(&s) > 3000 || (rank > 3 && s.extent[d] > 8)) s.extent[d] = 1 + random_below(3);
    }
    return s;
}

static inline void shape_text(text *out, const tile_shape *s, const char *between) {
    for (int d = 0; d < s->rank; d++) text_printf(out, "%s%lld", d ? between : "", (long long)s->extent[d]);
}

static inline void random_f32(random_program *p, text *out, const tile_shape *s, int depth);

/* A small integer: a constant, or one that an instruction, a loop or a step decides. */
static inline void random_integer(const random_program *p, text *out, int constant) {
    const int choice = random_below(12), k = random_below(COUNT_OF(p->loops));
    if (choice == 0)
        text_printf(out, "r * %d + %d", 1 + random_below(3), constant);
    else if (choice == 1)
        text_printf(out, "n - %d", 2 - constant);
    else if (choice < 8 && p->loops[k])
        text_printf(out, "k%d * %d + %d", k, 1 + random_below(2), constant);
    else
        text_printf(out, "%d", constant);
}

/* A range of a tensor's dimension: all of it, or one that may reach out of it. */
static inline void random_range(const random_program *p, text *out, int64_t room, int64_t size) {
    if (room == size && random_below(2)) {
        text_string(out, ":");
        return;
    }
    random_integer(p, out, random_below(5) - 2);
    text_printf(out, " : +%lld", (long long)size);
    if (random_below(8) == 0) text_printf(out, " < n + %d", random_below(9) - 1);
}

/* A slice of a new tensor, partly out of range; as f32. */
static inline void random_load(random_program *p, text *out, const tile_shape *s) {
    static const char *const types[] = {"f32",  "f32", "bf16", "f16",  "i8", "u4",   "i5",
                                        "e4m3", "f64", "i32",  "q8_x", "u3", "q16_x"};
    const char *type = types[random_below(COUNT_OF(types))];
    if (s->rank == 2 && random_below(6) == 0) {
        text_string(out, "(z[");
        random_range(p, out, 0, s->extent[0]);
        text_string(out, ", ");
        random_range(p, out, 0, s->extent[1]);
        text_string(out, "])");
        return;
    }
    if (p->param_count >= PARAMS) { /* no more tensors: numbers that differ */
        if (s->rank == 0) {
            text_string(out, "f32(");
            random_integer(p, out, random_below(7) - 3);
            text_string(out, ")");
        } else {
            text_printf(out, "f32((reshape(iota(%lld), ", (long long)tile_shape_count(s));
            shape_text(out, s, ", ");
            text_printf(out, ") + %d) %% 7 - 3)", random_below(9));
        }
        return;
    }
    const int elements = type[0] != 'q' ? 1 : type[1] == '8' ? 8 : 16;
    const bool block = elements > 1 && s->rank && s->extent[s->rank - 1] % elements == 0;
    if (!block && elements > 1) type = "f32";
    const int n = p->param_count++,
              point = s->rank < TILE_RANK && random_below(3) == 0 ? random_below(s->rank + (block ? 0 : 1)) : -1;
    const int gather = s->rank && !block && random_below(5) == 0 ? random_below(s->rank) : -1;
    text_printf(&p->params, "x%d: in %s[", n, type);
    text_printf(&p->tensors, "x%d", n);
    if (strcmp(type, "f32") || random_below(2))
        text_printf(out, "f32(x%d[", n);
    else
        text_printf(out, "(x%d[", n);
    const int rank = s->rank + (point >= 0);
    for (int d = 0, t = 0; d < rank; d++) {
        const char *comma = d ? ", " : "";
        if (d == point) {
            text_printf(&p->params, "%s4", comma);
            text_printf(&p->tensors, " 4");
            text_string(out, comma);
            random_integer(p, out, random_below(12) ? random_below(4) : random_below(9) - 2);
            continue;
        }
        const bool blocks = block && d == rank - 1;
        const int64_t size = s->extent[t],
                      room = blocks ? size + elements * random_below(3) : max_i64(1, size + random_below(7) - 2);
        text_printf(&p->params, "%s%lld", comma, (long long)room);
        text_printf(&p->tensors, " %lld", (long long)room);
        if (t == gather)
            text_printf(out, "%s(iota(%lld) * 3 + %d) %% %lld - 1", comma, (long long)size, random_below(5),
                        (long long)room + 2);
        else if (blocks)
            text_printf(out, "%s%s%d : +%lld", comma,
                        random_below(4) ? ""
                        : elements == 8 ? "r * 8 + "
                                        : "r * 16 + ",
                        elements * (random_below(3) - 1), (long long)size);
        else {
            text_string(out, comma);
            random_range(p, out, room, size);
        }
        t++;
    }
    if (rank == 0) text_printf(&p->params, "1"), text_printf(&p->tensors, " 1"), text_printf(out, "0");
    text_printf(&p->params, "], ");
    text_printf(&p->tensors, block ? "; " : " whole %d 3; ", type[0] == 'u' ? 0 : -3);
    text_printf(out, "])");
}

/* The shape with some extents made 1 and leading dimensions dropped: what broadcasts to s. */
static inline tile_shape narrower(const tile_shape *s) {
    tile_shape n = *s;
    for (int d = 0; d < n.rank; d++)
        if (random_below(4) == 0) n.extent[d] = 1;
    if (n.rank && random_below(6) == 0) {
        n.rank--;
        memmove(n.extent, n.extent + 1, (size_t)n.rank * sizeof n.extent[0]);
    }
    return n;
}

/* A shape with as many elements. */
static inline tile_shape refactored(const tile_shape *s) {
    int64_t rest = tile_shape_count(s);
    tile_shape n = {.rank = 1 + random_below(4)};
    for (int d = 0; d < n.rank; d++) {
        int64_t factor = 1;
        for (int tries = 0; tries < 3; tries++) {
            const int64_t f = 2 + random_below(16);
            if (rest % f == 0) factor = f;
        }
        n.extent[d] = d == n.rank - 1 ? rest : factor;
        rest /= n.extent[d];
    }
    return n;
}

static inline void random_bool(random_program *p, text *out, const tile_shape *s, int depth) {
    static const char *const compare[] = {"<", "<=", "==", "!="};
    const tile_shape n = narrower(s);
    text_string(out, "(");
    random_f32(p, out, s, depth + 2);
    text_printf(out, " %s ", compare[random_below(4)]);
    random_f32(p, out, &n, depth + 2);
    text_string(out, ")");
}

static inline void random_f32(random_program *p, text *out, const tile_shape *s, int depth) {
    static const char *const binary[] = {"+", "-", "+"}, *const functions[] = {"min", "max"};
    if (p->budget-- <= 0 || depth > 7) {
        random_load(p, out, s);
        return;
    }
    const int choice = random_below(16);
    const int axis = s->rank ? random_below(s->rank) : 0;
    tile_shape n = *s;
    if (choice <= 1) { /* a variable of that shape, if there is one */
        for (int i = 0; i < p->variable_count; i++) {
            const int k = (i + choice) % p->variable_count;
            if (memcmp(&p->variables[k].shape, s, sizeof *s)) continue;
            text_string(out, p->variables[k].name);
            return;
        }
        random_load(p, out, s);
    } else if (choice == 2)
        random_load(p, out, s);
    else if (choice <= 4) {
        n = narrower(s);
        text_string(out, "max(min(");
        random_f32(p, out, s, depth + 1);
        text_printf(out, " %s ", binary[random_below(3)]);
        random_f32(p, out, &n, depth + 1);
        text_string(out, ", 8), -8)");
    } else if (choice == 5) {
        n = narrower(s);
        text_string(out, "max(min(");
        random_f32(p, out, &n, depth + 1);
        text_string(out, " * ");
        random_f32(p, out, s, depth + 1);
        text_string(out, ", 8), -8)");
    } else if (choice == 6) {
        n = narrower(s);
        text_printf(out, "%s(", functions[random_below(2)]);
        random_f32(p, out, s, depth + 1);
        text_string(out, ", ");
        random_f32(p, out, &n, depth + 1);
        text_string(out, ")");
    } else if (choice == 7) {
        n = narrower(s);
        text_string(out, "where(");
        random_bool(p, out, s, depth + 1);
        text_string(out, ", ");
        random_f32(p, out, &n, depth + 1);
        text_string(out, ", ");
        random_f32(p, out, s, depth + 1);
        text_string(out, ")");
    } else if (choice <= 9 && s->rank && s->extent[axis] == 1) { /* a reduction */
        static const char *const reductions[] = {"sum", "max", "min", "argmax"}, *const types[] = {"(", "(", "f64(",
                                                                                                   "i32("};
        n.extent[axis] = random_extent();
        text_printf(out, "max(min(f32(%s(%s", reductions[random_below(4)], types[random_below(4)]);
        random_f32(p, out, &n, depth + 1);
        text_printf(out, "), axis = %d)), 8), -8)", axis);
    } else if (choice == 10 && s->rank >= 2) {
        n.extent[s->rank - 1] = s->extent[s->rank - 2];
        n.extent[s->rank - 2] = s->extent[s->rank - 1];
        text_string(out, "(");
        random_f32(p, out, &n, depth + 1);
        text_string(out, ").T");
    } else if (choice == 11 && s->rank) {
        n = refactored(s);
        text_string(out, "reshape(");
        random_f32(p, out, &n, depth + 1);
        text_string(out, ", ");
        shape_text(out, s, ", ");
        text_string(out, ")");
    } else if (choice == 12 && s->rank && s->extent[axis] > 1) {
        const int64_t first = 1 + random_below((int)s->extent[axis] - 1);
        n.extent[axis] = first;
        text_string(out, "concat(");
        random_f32(p, out, &n, depth + 1);
        n.extent[axis] = s->extent[axis] - first;
        text_string(out, ", ");
        random_f32(p, out, &n, depth + 1);
        text_printf(out, ", axis = %d)", axis);
    } else if (choice == 13 && s->rank) { /* a part of something larger */
        const int before = random_below(3);
        n.extent[axis] += before + random_below(3);
        text_string(out, "(");
        random_f32(p, out, &n, depth + 1);
        text_string(out, ")[");
        for (int d = 0; d < s->rank; d++)
            text_printf(out, d == axis ? "%s%d : +%lld" : "%s:", d ? ", " : "", before, (long long)s->extent[d]);
        text_string(out, "]");
    } else if (choice == 14 && s->rank == 2) {
        const tile_shape a = {2, {s->extent[0], random_extent()}}, b = {2, {a.extent[1], s->extent[1]}},
                         bt = {2, {s->extent[1], a.extent[1]}};
        static const char *const types[] = {"(", "(", "bf16(", "f16(", "i8("};
        const char *type = types[random_below(COUNT_OF(types))];
        const bool transposed = random_below(2);
        text_printf(out, "max(min(f32(dot(%s", type);
        random_f32(p, out, &a, depth + 1);
        text_printf(out, "), %s", type);
        random_f32(p, out, transposed ? &bt : &b, depth + 1);
        text_printf(out, ")%s)), 8), -8)", transposed ? ".T" : "");
    } else {
        static const char *const casts[][2] = {{"f32(bf16(", "))"},
                                               {"f32(f16(", "))"},
                                               {"f32(e4m3(", "))"},
                                               {"f32(i32(", "))"},
                                               {"f32(i5(", "))"},
                                               {"f32(f64(", "))"},
                                               {"abs(", ")"},
                                               {"-(", ")"},
                                               {"f32((i32(", ") * 3 + 1) % 5)"},
                                               {"f32(i32(", ") & 3)"},
                                               {"f32(i64(", ") / 3)"},
                                               {"f32(u32(abs(", ")) >> 1)"},
                                               {"min(floor(exp2(", ") + 0.25), 8)"},
                                               {"round((", ") * 0.75)"}};
        const int which = random_below(COUNT_OF(casts));
        text_string(out, casts[which][0]);
        random_f32(p, out, s, depth + 1);
        text_string(out, casts[which][1]);
    }
}

/* A loop of sums of dots over consecutive columns, of which the emitters make one dot. */
static inline void random_walk(random_program *p, int depth) {
    static const char *const types[] = {"f32", "bf16", "f16", "i8", "e4m3", "q8_x"}, *const casts[] = {"(", "bf16("};
    const char *type = types[random_below(COUNT_OF(types))], *cast = casts[random_below(2)];
    const bool block = *type == 'q', transposed = random_below(2), gathered = random_below(2);
    const int n = p->param_count, step = block ? 8 << random_below(2) : 1 + random_below(20), end = 1 + random_below(4),
              name = p->name_count;
    const int64_t rows = random_extent(), columns = block && !transposed ? 16 : random_extent(),
                  along = step * end + (block ? 0 : random_below(5) - 2) - step * random_below(2);
    if (n + 2 > PARAMS || along < 1 || p->variable_count == COUNT_OF(p->variables)) return;
    p->param_count += 2;
    p->name_count++;
    /* w = xn is columns by along or the other way round, the left operand x(n+1) is rows by step * end. */
    const tile_shape w = {2, {transposed ? columns : along, transposed ? along : columns}},
                     left = {2, {rows, step * end}};
    text_printf(&p->params, "x%d: in %s[", n, type);
    shape_text(&p->params, &w, ", ");
    text_printf(&p->params, "], x%d: in f32[", n + 1);
    shape_text(&p->params, &left, ", ");
    text_string(&p->params, "], ");
    text_printf(&p->tensors, "x%d ", n);
    shape_text(&p->tensors, &w, " ");
    text_printf(&p->tensors, "%s; x%d ", block ? "" : " whole -3 3", n + 1);
    shape_text(&p->tensors, &left, " ");
    text_string(&p->tensors, " whole -3 3; ");
    char turn[64], across[64];
    snprintf(turn, sizeof turn, "k%d * %d : +%d", depth, step, step);
    snprintf(across, sizeof across, "0 : +%d", (int)columns);
    text_printf(&p->body, "v%d: f32[%d, %d] = %d\n", name, (int)rows, (int)columns, random_below(3));
    text_printf(&p->body, "for k%d in %d .. %d {\n", depth, random_below(2), end);
    if (gathered) text_printf(&p->body, "l%d = x%d[:, %s] + 1\n", name, n + 1, turn);
    text_printf(&p->body, "v%d += dot(%s", name, cast);
    if (gathered)
        text_printf(&p->body, "l%d)", name);
    else
        text_printf(&p->body, "x%d[:, %s])", n + 1, turn);
    if (transposed)
        text_printf(&p->body, ", (%sf32(x%d[%s, %s]))).T)\n}\n", cast, n, across, turn);
    else
        text_printf(&p->body, ", %sf32(x%d[%s, %s])))\n}\n", cast, n, turn, across);
    text_printf(&p->body, "v%d = max(min(v%d, 8), -8)\n", name, name);
    p->variables[p->variable_count].shape = (tile_shape){2, {rows, columns}};
    snprintf(p->variables[p->variable_count++].name, sizeof p->variables[0].name, "v%d", name);
}

/* Writes to a part of z. */
static inline void random_write(random_program *p) {
    const tile_shape s = random_shape(2);
    text value = {0};
    p->budget = 8;
    random_f32(p, &value, &s, 1);
    text_string(&p->body, "z[");
    random_range(p, &p->body, 0, s.extent[0]);
    text_string(&p->body, ", ");
    random_range(p, &p->body, 0, s.extent[1]);
    text_printf(&p->body, "] %s max(min(%s, 8), -8)\n", random_below(3) ? "=" : "+=", value.data);
    text_free(&value);
}

static inline void random_statements(random_program *p, int count, int depth) {
    for (int i = 0; i < count; i++) {
        const int choice = random_below(10), known = p->variable_count;
        if (choice < 4 || known == 0) {
            if (known == COUNT_OF(p->variables)) continue;
            const tile_shape s = random_below(3) && known ? p->variables[random_below(known)].shape
                                                          : random_shape(random_below(4) + (random_below(4) > 0));
            char name[8];
            snprintf(name, sizeof name, "v%d", p->name_count++);
            text value = {0};
            p->budget = 12;
            random_f32(p, &value, &s, 0);
            text_printf(&p->body, s.rank ? "%s: f32[" : "%s: f32%s", name, "");
            if (s.rank) shape_text(&p->body, &s, ", "), text_string(&p->body, "]");
            text_printf(&p->body, " = %s\n", value.data);
            text_free(&value);
            p->variables[p->variable_count].shape = s;
            memcpy(p->variables[p->variable_count++].name, name, sizeof name);
        } else if (choice < 6) {
            const int k = random_below(known);
            text value = {0};
            p->budget = 8;
            random_f32(p, &value, &p->variables[k].shape, 1);
            const char *form =
                random_below(2) ? "%s = max(min(%s + %s, 8), -8)\n" : "%s = max(min(%s * 0 + %s, 8), -8)\n";
            text_printf(&p->body, form, p->variables[k].name, p->variables[k].name, value.data);
            text_free(&value);
        } else if (choice == 8)
            random_write(p);
        else if (choice == 9)
            random_walk(p, depth);
        else if (depth < 2) {
            const bool loop = choice == 6;
            if (loop) {
                text_printf(&p->body, "for k%d in %d .. ", depth, random_below(2));
                random_integer(p, &p->body, random_below(4));
                text_string(&p->body, " {\n");
                p->loops[depth] = true;
            } else if (random_below(3)) {
                text_string(&p->body, "if (");
                random_integer(p, &p->body, random_below(4));
                text_printf(&p->body, ") %% 2 == %d {\n", random_below(2));
            } else {
                const tile_shape scalar = {0};
                text value = {0};
                p->budget = 4;
                random_f32(p, &value, &scalar, 2);
                text_printf(&p->body, "if %s > 0 {\n", value.data);
                text_free(&value);
            }
            random_statements(p, 2, depth + 1);
            p->loops[depth] = false;
            p->variable_count = known;
            if (!loop && random_below(2)) {
                text_string(&p->body, "} else {\n");
                random_statements(p, 2, depth + 1);
                p->variable_count = known;
            }
            text_string(&p->body, "}\n");
        }
    }
}

/* Adds a case made from a seed. */
static inline void add_random(uint64_t seed) {
    random_program p = {.param_count = 0};
    text source = {0};
    char name[96];
    random_state = 88172645463325252u ^ seed * 0x9e3779b97f4a7c15u;
    random_bits();
    random_statements(&p, 4 + random_below(4), 0);
    text outs = {0};
    text_string(&p.tensors, "z 9 9 whole -3 3");
    for (int i = 0; i < p.variable_count && i < 3; i++) { /* the last variables are stored, a little to the side */
        const int k = p.variable_count - 1 - i;
        const tile_shape *s = &p.variables[k].shape;
        const bool adds = random_below(4) == 0, scatters = random_below(6) == 0;
        text_printf(&outs, ", y%d: %s f32[2", i, adds ? "inout" : "out");
        text_printf(&p.tensors, "; y%d 2", i);
        for (int d = 0; d < s->rank && d < 4; d++) {
            text_printf(&outs, ", %lld", (long long)s->extent[d]);
            text_printf(&p.tensors, " %lld", (long long)s->extent[d]);
        }
        text_printf(&outs, "]");
        if (adds) text_string(&p.tensors, " whole -3 3");
        text_printf(&p.body, "y%d[r", i);
        for (int d = 0; d < s->rank && d < 4; d++) {
            const long long size = s->extent[d];
            text_string(&p.body, ", ");
            if (d == 0 && scatters)
                text_printf(&p.body, "(iota(%lld) * 3 + %d) %% %lld - 1", size, random_below(5), size + 2);
            else if (random_below(d ? 12 : 3))
                text_printf(&p.body, "0 : +%lld", size);
            else
                random_range(&p, &p.body, 0, size);
        }
        text_printf(&p.body, "] %s %s\n", adds ? "+=" : "=", p.variables[k].name);
    }
    text_printf(&source,
                "format q8_x { block 8; q: i8[4]; p: u2[8]; n: u4[4]; value[i] = (p[i] + q[i %% 4] %% 4) * 1.0 - n[i / "
                "2] %% 2 }\n"
                "format q16_x { block 16; q: i8[4]; p: u2[16]; n: u4[8]; m: e2m1[16]; o: u1[16]; value[i] = (p[i] + "
                "q[i / 4] %% 4) * 1.0 - where(i < 8, n[i / 2], n[7 - i / 2]) %% 2 + m[2 * (i %% 8) + i / 8] * 2 * o[i] "
                "}\ntile t(n: live i32, %sz: inout f32[9, 9]%s) over (r in 2) {\n%s}\n",
                p.params.data ? p.params.data : "", outs.data ? outs.data : "", p.body.data);
    snprintf(name, sizeof name, "random %llu", (unsigned long long)seed);
    int inputs = 0;
    for (const char *c = p.tensors.data; *c; c++) inputs += *c == ';';
    if (p.variable_count && inputs < CASE_TENSORS) {
        test_case *c = add_case(name, source.data, "", p.tensors.data, 1e-30);
        c->lives[0] = random_below(8);
        c->own_tensors = p.tensors.data;
        p.tensors.data = NULL;
    }
    text_free(&source);
    text_free(&outs);
    text_free(&p.params);
    text_free(&p.tensors);
    text_free(&p.body);
}

#endif
