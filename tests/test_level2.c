/* Level 2 of the language: what is refused, where; the programs of examples/level2.tile and some of this file's own on
 * the CPU against double, and on the simulator under several schedules, whose bits must be the same; mistakes that only
 * show when roles run, which every machine must report.
 *
 * LEVEL2_ONLY: this test alone. LEVEL2_MACHINE: all programs run there alone, against double, ten times with the same
 * bits: "cuda:0", for one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "machine/sim/sim.h"
#include "monotile/monotile.h"
#include "temporary.h"
#include "tile/explicit.h"

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        mt_error error_ = {0};                                                                                         \
        const mt_status status_ = (call);                                                                              \
        if (status_ != MT_OK) fail_msg("%s: %s: %s", mt_status_name(status_), error_.where, error_.message);           \
    } while (0)

/* ---- what is refused ---- */

#define HEAD                                                                                                           \
    "tile t[N = 64, K = 128](x: in bf16[M, K], w: in bf16[N, K], f: in f32[M, K], c: in bf16[M, 3, K], y: out f32[M, " \
    "N]) over (m in ceil(M / 128)) {\n"
#define SHARED                                                                                                         \
    "shared a[2]: bf16[128, 64] pages swizzle(128)\nshared b[2]: bf16[64, 64] pages swizzle(128)\n"                    \
    "barrier full[2] (loader)\nbarrier empty[2] (consumer)\n"
#define ATOMIC "tile t(x: in i32[M], y: inout i32[M], f: inout f32[M], z: out i32[M]) over (m in M) {\n"
#define STAGE  "shared e: f32[8, 64]\n"
#define LOADS                                                                                                          \
    "{ for k in 2 { wait(empty[k], -1); expect(full[k], 24576); copy(a[k], x[m*128 : +128, k*64 : +64], "              \
    "full[k]); copy(b[k], w[0 : +64, k*64 : +64], full[k]) } }\n"
#define LOADER "role loader " LOADS
#define CONSUMER                                                                                                       \
    "role consumer { reg acc: f32[128, 64] = 0; for k in 2 { wait(full[k], 0); mma(acc, a[k], b[k].T); "               \
    "arrive(empty[k]) }; y[m*128 : +128, :] = acc }\n"

static int failures;

/* '@' marks where an error is expected; the messages in the order of the marks, by lines. */
static void refuse(const char *marked, const char *messages) {
    text source = {0}, expected = {0}, found = {0};
    int line = 1, column = 1;
    for (const char *c = marked, *message = messages; *c; c++) {
        if (*c == '@') {
            const int length = (int)strcspn(message, "\n");
            text_printf(&expected, "t.tile:%d:%d: error: %.*s\n", line, column, length, message);
            message += length + (message[length] != 0);
            continue;
        }
        text_append(&source, c, 1);
        column = *c == '\n' ? 1 : column + 1;
        line += *c == '\n';
    }
    tile_file *f = NULL;
    const tile_op *op;
    arena *a = arena_new();
    tile_diagnostics d = {0};
    mt_error e = {0};
    mt_status status = tile_parse(&f, "t.tile", source.data, source.length, &d, &e);
    if (status == MT_OK) status = tile_bind(a, &op, f, "t", NULL, 0, &d, &e);
    for (char *at = d.text.data, *end; at && *at; at = end + 1) {
        end = strchr(at, '\n');
        if (!strncmp(at, "t.tile:", 7)) text_append(&found, at, (size_t)(end - at) + 1);
    }
    const char *wanted = expected.data ? expected.data : "", *got = found.data ? found.data : "";
    if (status != (*wanted ? MT_E_SYNTAX : MT_OK) || strcmp(wanted, got)) {
        print_error("%s\nexpected\n%sfound\n%s%s\n", marked, wanted, d.text.data ? d.text.data : "nothing", e.message);
        failures++;
    }
    text_free(&source);
    text_free(&expected);
    text_free(&found);
    text_free(&d.text);
    arena_free(a);
    tile_file_free(f);
}

static void test_refused(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {HEAD SHARED LOADER CONSUMER "}", ""},
        /* the text */
        {HEAD "shared a @= 1\n}", "expected ':' and a type, found '='"},
        {HEAD "shared a: bf16[4, 8] @there\n}",
         "expected 'pages', 'resident', 'swizzle', 'rows' or the end of the statement, found 'there'"},
        {HEAD "barrier b@\n}", "expected '(' and the roles that arrive, as in (loader), found the end of the line"},
        {HEAD "role consumer (@lanes = 3) {}\n}", "expected 'warps', 'warpgroups' or 'registers', found 'lanes'"},
        {HEAD "role consumer (warps = 8, @warps = 8) {}\n}", "expected each number once, found 'warps'"},
        /* register budgets */
        {HEAD "role consumer (warps = 8, registers = @100) {}\n}",
         "a register budget is a multiple of 8, from 24 to 240, not 100"},
        {HEAD "role consumer (registers = @248) {}\n}", "a register budget is 248; expected 24 to 240"},
        {HEAD SHARED "role loader (registers = 40) " LOADS
                     "@role consumer (registers = 240) { for k in 2 { wait(full[k], 0); arrive(empty[k]) } }\n}",
         "two warpgroups of consumers with 240 registers a thread, and one of loader, storer and controller with 40: "
         "that "
         "is more than 64512 registers"},
        {HEAD STAGE SHARED "role loader (registers = 40) " LOADS CONSUMER
                           "@role storer (registers = 56) { store(y[0 : +8, 0 : +64], e) }\n}",
         "loader and storer are of one warpgroup, which has one number of registers: not 40 and 56"},
        {HEAD STAGE SHARED
         "role loader (registers = 24) " LOADS
         "role consumer (warps = 8, registers = 240) { for k in 2 { wait(full[k], 0); arrive(empty[k]) } }\n"
         "role storer (registers = 24) { store(y[0 : +8, 0 : +64], e) }\n}",
         ""},
        /* shared tensors */
        {HEAD "@shared a: q8_0[4, 32]\nrole consumer {}\n}", "shared tensors have elements of 8 to 64 bits, not q8_0"},
        {HEAD "shared a: bf16[4, 64] swizzle(@96)\nrole consumer {}\n}",
         "a swizzle is 128, 64 or 32 bytes wide, not 96"},
        {HEAD "shared a: bf16[4, 64] swizzle(@128)\nrole consumer {}\n}",
         "a swizzled tile has 2 dimensions, a multiple of 8 rows and rows of whole 128 bytes, not [4, 64] of bf16"},
        {HEAD "shared a: bf16[8, 64] rows(@68)\nrole consumer {}\n}",
         "rows are at least as long as the last extent, a multiple of 16 bytes, and of a tile of 2 dimensions or more"},
        {HEAD "@shared a: f32[128, 64] pages\nrole consumer {}\n}",
         "a stage of a tensor in pages has up to 16384 bytes, this one has 32768"},
        {HEAD "@shared a[13]: bf16[8, 64] pages\nbarrier full (loader)\nrole loader { expect(full, 1024); copy(a[0], "
              "x[0 : +8, 0 : +64], full) }\nrole consumer { wait(full, 0) }\n}",
         "that is too much shared memory: 13 pages of at most 12, and 0 resident bytes of at most 98304"},
        {HEAD "role consumer { @shared a: bf16[8, 64] }\n}",
         "a shared tensor stands outside of roles, loops and conditions"},
        /* stages */
        {HEAD SHARED LOADER "role consumer { wait(full[@2], 0); wait(full[1], 0); arrive(empty[1]) }\n}",
         "there are 2 of full; that this is one of 0 to 1 must be seen, as in i % 2"},
        {HEAD SHARED LOADER "role consumer { for k in 3 { wait(full[@k], 0); arrive(empty[k % 2]) } }\n}",
         "there are 2 of full; that this is one of 0 to 1 must be seen, as in i % 2"},
        {HEAD SHARED LOADER "role consumer { wait(@full, 0); wait(full[0], 0); arrive(empty[0]) }\n}",
         "there are 2 of full; say which, as in full[s]"},
        /* roles */
        {HEAD "@role launcher {}\n}", "the roles are loader, consumer and storer"},
        {"tile @t(x: in f32[M]) over (m in M) {\nrole consumer {}\nrole storer {}\n}",
         "a storer stores stages; this one does not"},
        {HEAD "role consumer {}\nrole storer (warps = @2) {}\n}", "the storer is one warp"},
        {HEAD "role consumer {}\n@role consumer {}\n}",
         "role consumer stands here for the second time; the first is on line 2"},
        {HEAD "role consumer (warps = @4) {}\n}", "the consumers are 8 warps, 2 warpgroups"},
        {"tile @t(x: in f32[M]) over (m in M) {\nrole loader {}\n}", "a program of level 2 has a role consumer"},
        {HEAD "@v = x[0 : +8, :]\nrole consumer {}\n}",
         "outside of roles there are declarations, and scalars that never change and are computed without tensors"},
        {HEAD "role consumer { jump@(3) }\n}", "expected '=', ':', '[', '+=', '-=' or '*=' behind the name, found '('"},
        {HEAD "role consumer { @wait(1) }\n}", "expected wait(barrier, phase)"},
        {HEAD "@sync()\nrole consumer {}\n}", "sync stands in a role"},
        {HEAD "role loader { @sync() }\nrole consumer {}\n}", "sync is what the consumer does, not the loader"},
        {HEAD "role loader { @commit() }\nrole consumer {}\n}",
         "commit is what the consumer or the storer does, not the loader"},
        {HEAD "role storer { @y[0, 0] = 1.0 }\nrole consumer {}\n}",
         "the storer stores stages, as in store(y[i : +n, :], c[s])"},
        {HEAD "role storer { @v = f[0, 0] }\nrole consumer {}\n}",
         "the storer computes with indices, extents, args and live values only, not with elements of tensors"},
        {HEAD "role consumer { @store(1) }\n}", "store is what the storer does, not the consumer"},
        {HEAD STAGE "role storer { store(@y, e) }\nrole consumer {}\n}",
         "expected a slice of a tensor, as in store(y[i : +n, :], c[s])"},
        {HEAD STAGE "role storer { store(f@[0 : +8, 0 : +64], e) }\nrole consumer {}\n}",
         "f is an input and cannot be written"},
        {HEAD STAGE "role storer { store(y[0 : +8, 0 : +64], @m) }\nrole consumer {}\n}",
         "a store takes a stage of a shared tensor, as in store(y[i : +n, :], c[s])"},
        {HEAD STAGE "role storer { store(y[0 : +8, 0 : +64], e@[0, :]) }\nrole consumer {}\n}",
         "a store takes a whole stage"},
        {HEAD "shared e: f32[8, 32] swizzle(128)\nrole storer { store(y[0 : +8, 0 : +32], @e) }\nrole consumer {}\n}",
         "a store takes stages in rows; e is swizzled"},
        {HEAD STAGE "role storer { store(y@[0 : +8, 0], e) }\nrole consumer {}\n}",
         "a store fills a slice of one or two dimensions whose last item is a range"},
        {HEAD STAGE "role storer { store(y[0 : +4, 0 : +64], @e) }\nrole consumer {}\n}",
         "e is f32[8, 64], the slice is f32[4, 64]"},
        {HEAD STAGE "barrier b (storer)\nrole storer { store(y[0 : +8, 0 : +64], e); arrive(b) }\n"
                    "role consumer { wait(b, 0) }\n}",
         ""},
        {HEAD "role loader { @v = f[0, 0] }\nrole consumer {}\n}",
         "the loader computes with indices, extents, args and live values only, not with elements of tensors"},
        {HEAD "role loader { @y[0, 0] = 1 }\nrole consumer {}\n}", "the loader stores nothing"},
        {HEAD SHARED "role loader { v = @a[0] }\nrole consumer {}\n}",
         "a is a shared tensor; only the consumers read those"},
        {HEAD SHARED LOADER "role consumer { @a[0] = x[0 : +128, 0 : +64] }\n}",
         "a lies in pages, which the loader's copies fill; what consumers write is resident"},
        /* atomics */
        {ATOMIC "role consumer { atomic_add(@y, 1, relaxed, gpu) }\n}",
         "expected a slice of a tensor, as in atomic_add(y[i : +n], v, relaxed, gpu)"},
        {ATOMIC "role consumer { atomic_add(x@[0 : +4], 1, relaxed, gpu) }\n}", "x is an input and cannot be written"},
        {ATOMIC "role consumer { atomic_add(f@[0 : +4], 1.0, relaxed, gpu) }\n}",
         "f is f32; atomics are of i32 and u32: what floats add up to depends on who comes first, and results are the "
         "same "
         "bits every time"},
        {ATOMIC "role consumer { atomic_add(z@[0 : +4], 1, relaxed, gpu) }\n}",
         "z is an output and cannot be read; atomics need an inout parameter"},
        {ATOMIC "role consumer { atomic_add(y[0 : +4], 1, @strict, gpu) }\n}",
         "expected an order: relaxed, acquire, release or acq_rel"},
        {ATOMIC "role consumer { atomic_add(y[0 : +4], 1, relaxed, @7) }\n}",
         "expected a scope: cta, which is this instruction, or gpu"},
        {ATOMIC "role consumer { atomic_add(y[0 : +4], x@[0 : +3], relaxed, gpu) }\n}",
         "a value of shape [3] does not fit y of shape [4]"},
        {ATOMIC "role consumer { atomic_add(y[0 : +4], f@[0 : +4], relaxed, gpu) }\n}",
         "y is i32, the value is f32; cast it, as in i32(x)"},
        {ATOMIC "role consumer { atomic_add(y[0 : +1], 1, @acquire, gpu) }\n}",
         "acquire is about what was there before: a fifth argument, a scalar, takes it"},
        {ATOMIC "role consumer { b: u32 = 0; atomic_add(y[0 : +1], 1, acquire, gpu, @b) }\n}",
         "what was there before goes into a variable, a scalar of i32"},
        {ATOMIC "role consumer { b: i32 = 0; atomic_add(y@[0 : +2], 1, acquire, gpu, b) }\n}",
         "what was there before is known of one element, not of [2]"},
        {ATOMIC "role consumer { @atomic_add(y[0 : +1], 1) }\n}",
         "expected atomic_add(slice, value, order, scope), and a variable for what was there before, or none"},
        {ATOMIC "role storer { @atomic_add(y[0 : +1], 1, relaxed, gpu) }\nrole consumer {}\n}",
         "atomic_add is what the consumer does, not the storer"},
        {ATOMIC "unordered @x, @q\nrole consumer {}\n}", "x is only read: there is nothing to order\nq is no tensor; "
                                                         "an unordered one is touched by several instructions at "
                                                         "a time"},
        {ATOMIC "role consumer { @unordered y }\n}", "what is unordered stands outside of roles, loops and conditions"},
        {ATOMIC "unordered y, f\nrole consumer { b: i32 = 0; atomic_max(y[3], x[0], acq_rel, cta, b) }\n}", ""},
        /* stamped data */
        {ATOMIC "role consumer { stamp(@f) }\n}", "expected a slice of a tensor, as in post(t[i, :], v)"},
        {ATOMIC "role consumer { post(y@[0 : +4], 1) }\n}", "stamped data are f32, in an inout tensor, not i32"},
        {ATOMIC "role consumer { post(f[0 : +4], x@[0 : +4]) }\n}",
         "f is f32, the value is i32; cast it, as in f32(x)"},
        {ATOMIC "role consumer { post(f[0 : +4], f@[0 : +3]) }\n}", "a value of shape [3] does not fit f of shape [4]"},
        {ATOMIC "role consumer { v: f32[3] = 0; take(@v, f[0 : +4]) }\n}",
         "what is taken goes into a tile in registers that is f32[4]"},
        {ATOMIC "role consumer { v: f32 = 0; take(v, f@[0]) }\n}",
         "take takes a tile; one element is one of these: f[i : +1]"},
        {ATOMIC "role consumer {}\nrole loader { @post(f[0], 1) }\n}",
         "post is what the consumer does, not the loader"},
        {ATOMIC "role consumer { v: f32[4] = 0; take(v, f[0 : +4]); stamp(f[0 : +4]); post(f[1], 2) }\n}", ""},
        /* barriers */
        {HEAD "barrier b (@launcher)\nrole consumer {}\n}",
         "expected the roles that arrive, each once: loader, consumer, storer"},
        {HEAD "@barrier b (consumer)\nrole consumer { arrive(b); wait(b, 0) }\n}",
         "barriers are for two roles; there is only one. The consumers' threads meet at sync()"},
        {HEAD "@barrier b (loader)\nrole loader { arrive(b) }\nrole consumer {}\n}", "nobody waits for b"},
        {HEAD "@barrier b (loader, consumer)\nrole loader { arrive(b) }\nrole consumer { wait(b, 0) }\n}",
         "the consumer is to arrive at b, and never does"},
        {HEAD "barrier b (loader)\nrole loader { arrive(b) }\nrole consumer { wait(b, 0); @arrive(b) }\n}",
         "b is declared on line 2 without this role among those that arrive"},
        {HEAD "barrier b[33@] (loader)\nrole consumer {}\n}", ""},
        {"tile @t(x: in f32[M]) over (m in M) {\nbarrier b (loader)\nrole loader { arrive(b) }\nrole consumer { "
         "wait(b, 0) "
         "}\n}",
         "a loader fills pages; this program has none"},
        /* bytes */
        {HEAD SHARED
         "role loader { for k in 2 { wait(empty[k], -1); @expect(full[k], 24000); copy(a[k], x[m*128 : +128, "
         "k*64 : +64], full[k]); copy(b[k], w[0 : +64, k*64 : +64], full[k]) } }\n" CONSUMER "}",
         "full expects 24000 bytes, the copies behind it bring 24576"},
        {HEAD SHARED
         "role loader { for k in 2 { wait(empty[k], -1); expect(full[k], 16384); copy(a[k], x[m*128 : +128, "
         "k*64 : +64], full[k]); @copy(b[k], w[0 : +64, k*64 : +64], full[0]) } }\n" CONSUMER "}",
         "nobody expects these bytes: an expect for the same barrier stands in front of its copies"},
        {HEAD SHARED "role loader { expect(full[0], 8192); copy(b[0], w@[0 : +32, 0 : +64], full[0]) }\n" CONSUMER "}",
         "b is bf16[64, 64], the slice is bf16[32, 64]"},
        {HEAD SHARED "role loader { expect(full[0], 8192); copy(b[0], f[0 : +64, @0 : +64], full[0]) }\n" CONSUMER "}",
         ""},
        /* products */
        {HEAD SHARED LOADER "role consumer { reg acc: f32[128, 32] = 0; mma(@acc, a[0], b[0].T) }\n}",
         "the product is f32[128, 64], acc is f32[128, 32]"},
        {HEAD
         "role consumer { acc: f32[8, 8] = 0; p = x[0 : +8, 0 : +16]; q = w[0 : +8, 0 : +16]; @mma(acc, p, q.T) }\n}",
         "mma.m16n8k16 makes products of 16 x 8 over 16: [8, 8] over 16 is no multiple"},
        {HEAD
         "role consumer { acc: f32[16, 8] = 0; p = x[0 : +16, 0 : +16]; q = w[0 : +8, 0 : +16]; mma(acc, p, @q.T) }\n}",
         ""},
        {HEAD SHARED LOADER "role consumer { reg acc: f32[128, 64] in spatial(32, 8).local(4, 8) = 0; @mma(acc, a[0], "
                            "b[0].T); arrive(empty[0]); wait(full[0], 0) }\n}",
         "acc cannot be an accumulator of mma: its layout must end in local(2, 1).spatial(8, 4).local(1, 2), which is "
         "what "
         "mma.m16n8k16 leaves in a warp"},
        {HEAD SHARED LOADER
         "role consumer { reg acc: f32[128, 64] = 0; for k in 2 { wait(full[k], 0); wgmma(acc, a[k], "
         "b[k].T); commit(); arrive(empty[k]) }; @y[m*128 : +128, :] = acc }\n}",
         "wgmma may still be at work on acc; wait_group(0) stands in front"},
        {HEAD SHARED LOADER "role consumer { reg acc: f32[64, 128] = 0; wgmma(acc, b[0]@.T, a[0].T) }\n}",
         "wgmma's left operand is a tile in registers, or a stage [m, k] of a shared tensor with swizzle(128)"},
        /* layouts */
        {HEAD "role consumer { reg v: f32[16, 64] in @spatial(8, 32).local(1, 2) = 0 }\n}",
         "the layout is of a tile [8, 64], this one is [16, 64]"},
        {HEAD "role consumer { reg v: f32[16, 64] in @spatial(8, 16).local(2, 4) = 0 }\n}",
         "the layout has 128 threads, the consumers 256; replicated(n) makes up for the rest"},
        {HEAD "role consumer { reg v: f32[16, 64] in @swirl(8, 16) = 0 }\n}",
         "a layout is made of local(...), spatial(...), column_local(...), column_spatial(...) and replicated(n)"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        if (*cases[i][1] || !strchr(cases[i][0], '@')) refuse(cases[i][0], cases[i][1]);
    assert_int_equal(failures, 0);
}

/* ---- running ---- */

typedef struct array {
    const char *name, *type;
    mt_role role;
    int rank;
    int64_t extent[3];
    void *data;
    size_t count;
} array;

static uint32_t seed = 1;
static float random_number(void) {
    seed = seed * 1664525u + 1013904223u;
    return (float)(seed >> 8) / (1 << 23) - 1;
}
static uint16_t bf16_of(float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static double value_of(const array *a, size_t i) {
    return tile_format_get(tile_format_find(a->type), a->data, (int64_t)i);
}
static size_t bytes_of(const array *a) {
    return (size_t)tile_format_bytes(tile_format_find(a->type), (int64_t)a->count);
}

static void make(array *a) {
    const tile_format *t = tile_format_find(a->type);
    a->count = 1;
    for (int d = 0; d < a->rank; d++) a->count *= (size_t)a->extent[d];
    a->data = aligned_alloc(64, (a->count * 4 + 127) / 64 * 64);
    for (size_t i = 0; i < a->count; i++)
        tile_format_set(t, a->data, (int64_t)i,
                        a->role == MT_OUTPUT ? NAN
                        : t->scalar.kind == TILE_INT
                            ? floor(random_number() * 5 + 4) /* row numbers, some out of range */
                            : random_number());
}

typedef struct node {
    const char *program;     /* of the file; '*' in front: of the library */
    const char *operands[8]; /* names of arrays, as "parameter=array"; else a number, an integer, a type */
} node;

/* A bug of the device code: the first `find` behind `near` in the unit that is simulated becomes `put`. */
typedef struct bug {
    const char *near, *find, *put;
} bug;
static const bug *seeded;

static void edit_unit(text *unit, void *context) {
    const bug *b = context;
    const char *at = strstr(unit->data, b->near);
    if (at) at = strstr(at, b->find);
    if (!at) fail_msg("the unit has no '%s' behind '%s'", b->find, b->near);
    text changed = {0};
    text_append(&changed, unit->data, (size_t)(at - unit->data));
    text_string(&changed, b->put);
    text_string(&changed, at + strlen(b->find));
    assert_false(changed.failed);
    text_free(unit);
    *unit = changed;
}

/* Builds, compiles and runs it twice; the outputs are in their arrays. The error is the caller's, if it wants it. */
static mt_status run(const char *machine_name, const mt_tile *file, const node *nodes, int node_count, array *arrays,
                     int array_count, mt_error *error) {
    mt_graph *g = NULL;
    mt_machine *m = NULL;
    mt_program *p = NULL;
    mt_session *s = NULL;
    mt_tensor tensors[16];
    mt_status status = mt_graph_create(&g, error);
    if (status == MT_OK) status = mt_graph_use(g, file, error);
    for (int i = 0; i < array_count && status == MT_OK; i++)
        status = mt_graph_tensor(g, arrays[i].role, arrays[i].name, arrays[i].type, arrays[i].rank, arrays[i].extent,
                                 &tensors[i], error);
    for (int n = 0; n < node_count && status == MT_OK; n++) {
        mt_operand operands[8];
        size_t count = 0;
        char names[8][32];
        for (; count < 8 && nodes[n].operands[count]; count++) {
            const char *o = nodes[n].operands[count], *value = strchr(o, '=') + 1;
            snprintf(names[count], sizeof names[0], "%.*s", (int)(value - o - 1), o);
            int i = 0;
            while (i < array_count && strcmp(arrays[i].name, value)) i++;
            operands[count] = i < array_count      ? MT_OPERAND(names[count], tensors[i])
                              : *value >= 'a'      ? MT_OPERAND_TYPE(names[count], value)
                              : strchr(value, '.') ? MT_OPERAND_FLOAT(names[count], (float)atof(value))
                                                   : MT_OPERAND_INTEGER(names[count], atoll(value));
        }
        const bool library = *nodes[n].program == '*';
        status =
            mt_graph_node(g, library ? NULL : file, nodes[n].program + library, NULL, operands, count, NULL, error);
    }
    if (status == MT_OK) status = mt_machine_open(&m, machine_name, error);
    if (status == MT_OK && seeded) {
        ((sim_machine *)m)->edit = edit_unit;
        ((sim_machine *)m)->edit_context = (void *)seeded;
    }
    if (status == MT_OK) status = mt_compile(g, &(mt_target){.processors = mt_machine_processors(m)}, &p, error);
    if (status == MT_OK) status = mt_session_create(&s, m, p, error);
    for (int i = 0; i < array_count && status == MT_OK; i++)
        if (arrays[i].role != MT_TEMP)
            status = arrays[i].role == MT_WEIGHT
                         ? mt_session_bind_weight(s, arrays[i].name, arrays[i].data, bytes_of(&arrays[i]), error)
                         : mt_session_bind(s, arrays[i].name, arrays[i].data, bytes_of(&arrays[i]), error);
    for (int turn = 0; turn < 2 && status == MT_OK; turn++) status = mt_session_run(s, error);
    mt_session_destroy(s);
    mt_program_destroy(p);
    mt_machine_close(m);
    mt_graph_destroy(g);
    return status;
}

static const char *const schedules[] = {"sim:1",
                                        "sim:2,random=1",
                                        "sim:3,random=2",
                                        "sim:1,adversarial=loader-late,seed=1",
                                        "sim:2,adversarial=loader-early,seed=2",
                                        "sim:1,adversarial=copies-late",
                                        "sim:1,adversarial=copies-reverse",
                                        "sim:1,adversarial=starve-warp,seed=3",
                                        "sim:1,adversarial=lanes-apart"};

/* The CPU against what the caller expects, in double; the simulator against the CPU, and itself bit by bit. */
static void check(const mt_tile *file, const node *nodes, int node_count, array *arrays, int array_count,
                  double (*expected)(const array *arrays, const int64_t *at), double tolerance, size_t schedule_count) {
    array *y = &arrays[array_count - 1];
    for (int i = 0; i < array_count; i++) make(&arrays[i]);
    const char *only = getenv("LEVEL2_MACHINE");
    void *begin = malloc(bytes_of(y)); /* of a state; NaN of an output */
    memcpy(begin, y->data, bytes_of(y));
    OK(run(only ? only : "cpu:2", file, nodes, node_count, arrays, array_count, &error_));
    int64_t at[3] = {0};
    for (size_t i = 0; i < y->count && expected; i++) {
        const double want = expected(arrays, at), got = value_of(y, i);
        if (!(fabs(got - want) <= tolerance * (1 + fabs(want))))
            fail_msg("%s, element %zu: %g, expected %g", nodes[0].program, i, got, want);
        for (int d = y->rank - 1; d >= 0 && ++at[d] == y->extent[d]; d--) at[d] = 0;
    }
    void *cpu = malloc(bytes_of(y)), *first = malloc(bytes_of(y));
    memcpy(cpu, y->data, bytes_of(y));
    for (size_t k = 0; k < (only ? 3 : schedule_count); k++) {
        memcpy(y->data, begin, bytes_of(y));
        OK(run(only ? only : schedules[k], file, nodes, node_count, arrays, array_count, &error_));
        if (!k) memcpy(first, y->data, bytes_of(y));
        if (memcmp(first, y->data, bytes_of(y)))
            fail_msg("%s: other bits on %s", nodes[0].program, only ? only : schedules[k]);
    }
    for (size_t i = 0; i < y->count && schedule_count; i++) {
        array other = *y;
        other.data = cpu;
        if (!(fabs(value_of(y, i) - value_of(&other, i)) <= 2 * tolerance * (1 + fabs(value_of(y, i)))))
            fail_msg("%s, element %zu: simulator %g, CPU %g", nodes[0].program, i, value_of(y, i), value_of(&other, i));
    }
    free(begin);
    free(cpu);
    free(first);
    for (int i = 0; i < array_count; i++) free(arrays[i].data);
}

static double linear(const array *a, const int64_t *at) {
    double sum = 0;
    const size_t k = (size_t)a[0].extent[1];
    for (size_t i = 0; i < k; i++)
        sum += value_of(&a[0], (size_t)at[0] * k + i) * value_of(&a[1], (size_t)at[1] * k + i);
    return sum;
}

static mt_tile *open_examples(void) {
    mt_tile *file;
    OK(mt_tile_open(&file, MONOTILE_SOURCE_FOLDER "/examples/level2.tile", NULL, &error_));
    return file;
}

static void test_matmul(void **state) {
    (void)state;
    mt_tile *file = open_examples();
    static const struct { /* the last runs through the ring more than once, and rows of 100 have no map */
        int64_t m, n, k;
        bool wide, weight;
    } sizes[] = {{1, 1, 8, false, true},
                 {129, 65, 100, false, false},
                 {127, 130, 456, true, true},
                 {128, 64, 328, false, false}};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        const int64_t m = sizes[i].m, n = sizes[i].n, k = sizes[i].k;
        const bool wide = sizes[i].wide, weight = sizes[i].weight;
        array arrays[] = {
            {.name = "x", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {m, k}},
            {.name = "w", .type = "bf16", .role = weight ? MT_WEIGHT : MT_INPUT, .rank = 2, .extent = {n, k}},
            {.name = "y", .type = wide ? "bf16" : "f32", .role = MT_OUTPUT, .rank = 2, .extent = {m, n}}};
        const node nodes[] = {{wide ? "matmul2_wgmma" : "matmul2", {"x=x", "w=w", "y=y"}}};
        check(file, nodes, 1, arrays, 3, linear, wide ? 4e-3 : 1e-5, i > 1 ? COUNT_OF(schedules) : 2);
    }
    mt_tile_close(file);
}

static double attention(const array *a, const int64_t *at) {
    const int64_t m = a[0].extent[0], h = a[0].extent[1], d = a[0].extent[2], s = a[1].extent[0], hk = a[1].extent[1],
                  head = at[1] / (h / hk);
    double total = 0, sum = 0;
    for (int64_t k = 0; k <= s - m + at[0]; k++) {
        double score = 0;
        for (int64_t i = 0; i < d; i++)
            score += value_of(&a[0], (size_t)((at[0] * h + at[1]) * d + i)) *
                     value_of(&a[1], (size_t)((k * hk + head) * d + i));
        const double weight = exp(score * 0.125);
        total += weight;
        sum += weight * value_of(&a[2], (size_t)((k * hk + head) * d + at[2]));
    }
    return sum / total;
}

static void test_attention(void **state) {
    (void)state;
    mt_tile *file = open_examples();
    static const int64_t sizes[][5] = {{65, 130, 4, 2, 64}, {129, 129, 1, 1, 128}};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        const int64_t m = sizes[i][0], s = sizes[i][1], h = sizes[i][2], hk = sizes[i][3], d = sizes[i][4];
        array arrays[] = {{.name = "q", .type = "bf16", .role = MT_INPUT, .rank = 3, .extent = {m, h, d}},
                          {.name = "k", .type = "bf16", .role = MT_INPUT, .rank = 3, .extent = {s, hk, d}},
                          {.name = "v", .type = "bf16", .role = MT_INPUT, .rank = 3, .extent = {s, hk, d}},
                          {.name = "y", .type = "bf16", .role = MT_OUTPUT, .rank = 3, .extent = {m, h, d}}};
        for (int wide = 0; wide < 2; wide++) {
            const node nodes[] = {
                {wide ? "attention2_wgmma" : "attention2", {"q=q", "k=k", "v=v", "scale=0.125", "y=y"}}};
            check(file, nodes, 1, arrays, 4, attention, 1.2e-2, i == 0 ? COUNT_OF(schedules) : 2);
        }
    }
    mt_tile_close(file);
}

/* Instructions that read what others write: the loader has to wait as the consumers do, in the second run as well. */
static double chain(const array *a, const int64_t *at) {
    double sum = 0;
    const size_t k = (size_t)a[0].extent[1], n = (size_t)a[1].extent[0];
    for (size_t j = 0; j < n; j++) {
        double inner = 0;
        for (size_t i = 0; i < k; i++) inner += value_of(&a[0], (size_t)at[0] * k + i) * value_of(&a[1], j * k + i);
        const uint32_t bits = (uint32_t)bf16_of((float)inner) << 16;
        float rounded;
        memcpy(&rounded, &bits, 4);
        sum += rounded * value_of(&a[2], (size_t)at[1] * n + j);
    }
    return sum;
}

static void test_chain(void **state) {
    (void)state;
    mt_tile *file = open_examples();
    const int64_t m = 130, k = 72, n = 136, o = 40;
    array arrays[] = {{.name = "x", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {m, k}},
                      {.name = "w", .type = "bf16", .role = MT_WEIGHT, .rank = 2, .extent = {n, k}},
                      {.name = "v", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {o, n}},
                      {.name = "t", .type = "bf16", .role = MT_TEMP, .rank = 2, .extent = {m, n}},
                      {.name = "y", .type = "f32", .role = MT_OUTPUT, .rank = 2, .extent = {m, o}}};
    const node nodes[] = {{"matmul2_wgmma", {"x=x", "w=w", "y=t"}}, {"matmul2", {"x=t", "w=v", "y=y"}}};
    check(file, nodes, 2, arrays, 5, chain, 2e-2, COUNT_OF(schedules));
    mt_tile_close(file);
}

/* A weight that an op of level 1 reads as well lies in atoms. */
static void test_atoms(void **state) {
    (void)state;
    mt_tile *file = open_examples();
    for (int wide = 0; wide < 2; wide++) {
        array arrays[] = {
            {.name = "x", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {20, 136}},
            {.name = "w", .type = "bf16", .role = MT_WEIGHT, .rank = 2, .extent = {75, 136}},
            {.name = "z", .type = "bf16", .role = MT_OUTPUT, .rank = 2, .extent = {20, 75}},
            {.name = "y", .type = wide ? "bf16" : "f32", .role = MT_OUTPUT, .rank = 2, .extent = {20, 75}}};
        const node nodes[] = {{"*linear", {"x=x", "w=w", "y=z", "P=bf16"}},
                              {wide ? "matmul2_wgmma" : "matmul2", {"x=x", "w=w", "y=y"}}};
        check(file, nodes, 2, arrays, 4, linear, wide ? 4e-3 : 1e-5, 3);
    }
    mt_tile_close(file);
}

/* Layouts that meet: given ones, transposes, a tile through resident memory, a left operand from another layout. */
static const char meeting[] = "tile meet(x: in f32[64, 64], y: out f32[64, 64]) over (one in 1) {\n"
                              " shared c: bf16[64, 64] resident swizzle(128)\n"
                              " role consumer {\n"
                              "  reg a: f32[64, 64] in spatial(16, 16).local(4, 4) = x\n"
                              "  reg b: f32[64, 64] in column_spatial(64, 4).local(1, 16) = a * 2.0\n"
                              "  t = b.T\n"
                              "  c = bf16(t)\n"
                              "  sync()\n"
                              "  acc: f32[64, 64] = 0\n"
                              "  left = bf16(a)\n"
                              "  mma(acc, left, c)\n" /* x · 2 xᵀᵀ... = x · (2 x)ᵀ */
                              "  acc = acc + sum(a, axis = 1) - max(b, axis = 1) * f32(c[:, 0 : +1])\n"
                              "  y[:, :] = acc\n"
                              " }\n"
                              "}\n"
                              "tile small(x: in f32[M, 3], y: out f32[3, M]) over (m in ceil(M / 5)) {\n"
                              " role consumer {\n"
                              "  v = x[m*5 : +5, :]\n"
                              "  w = v.T * 2.0 + 1.0\n"
                              "  for i in 3 { if i % 2 == 1 { w = w - f32(i) } }\n"
                              "  y[:, m*5 : +5] = w\n"
                              " }\n"
                              "}\n";

static double rounded(double v) {
    const uint32_t bits = (uint32_t)bf16_of((float)v) << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
static double met(const array *a, const int64_t *at) {
    double sum = 0, all = 0, most = -INFINITY;
    for (int64_t k = 0; k < 64; k++) {
        const double x = value_of(&a[0], (size_t)(at[0] * 64 + k)), z = value_of(&a[0], (size_t)(at[1] * 64 + k));
        sum += rounded(x) * rounded(2 * z);
        all += x;
        most = fmax(most, 2 * x);
    }
    return sum + all - most * rounded(2 * value_of(&a[0], (size_t)at[0]));
}
static double turned(const array *a, const int64_t *at) { return value_of(&a[0], (size_t)(at[1] * 3 + at[0])) * 2; }

static void test_layouts_meet(void **state) {
    (void)state;
    mt_tile *file;
    OK(mt_tile_parse(&file, "meet.tile", meeting, sizeof meeting - 1, NULL, &error_));
    array arrays[] = {{.name = "x", .type = "f32", .role = MT_INPUT, .rank = 2, .extent = {64, 64}},
                      {.name = "y", .type = "f32", .role = MT_OUTPUT, .rank = 2, .extent = {64, 64}}};
    check(file, &(node){"meet", {"x=x", "y=y"}}, 1, arrays, 2, met, 1e-4, COUNT_OF(schedules));
    array few[] = {{.name = "x", .type = "f32", .role = MT_INPUT, .rank = 2, .extent = {13, 3}},
                   {.name = "y", .type = "f32", .role = MT_OUTPUT, .rank = 2, .extent = {3, 13}}};
    check(file, &(node){"small", {"x=x", "y=y"}}, 1, few, 2, turned, 1e-5, COUNT_OF(schedules));
    /* The conversions are shown. */
    char *shown;
    OK(mt_tile_lower((const mt_tile *)file, "meet", NULL, 0, 0, &shown, NULL, &error_));
    assert_non_null(strstr(shown, "it changes threads"));
    assert_non_null(strstr(shown, "column_spatial"));
    free(shown);
    mt_tile_close(file);
}

/* Programs without a reference of their own: what the simulator computes from the lowered form is what the CPU computes
 * from the text. Layouts of all sorts, other types, indirect rows, booleans, parts, axes of tiles of three dimensions.
 */
static const char various[] =
    "tile layouts(x: in bf16[128, 64], w: in bf16[64, 64], y: out f32[64, 128]) over (one in 1) {\n"
    " shared a: bf16[64, 128] resident rows(136)\n"
    " shared b: bf16[64, 64] resident\n"
    " role consumer {\n"
    "  a = x.T\n"
    "  b = w\n"
    "  sync()\n"
    "  reg acc: f32[128, 64] in column_local(2, 4).column_spatial(4, 2).local(2, 1).spatial(8, 4).local(1, 2) = 1.5\n"
    "  mma(acc, a.T, b)\n"
    "  reg two: f32[128, 64] in spatial(2, 4).local(4, 2).local(2, 1).spatial(8, 4).local(1, 2) = acc\n"
    "  mma(two, a.T, b.T)\n"
    "  y[:, :] = (acc + two).T\n"
    " }\n"
    "}\n"
    "tile types(x: in f16[M, 24], i: in i32[M], t: in f32[S, 24], n: arg i32, s: arg f32, y: inout f32[M, 24], z: out "
    "u8[M, 24])\n"
    " over (m in ceil(M / 20)) {\n"
    " shared c[2]: f32[20, 24] resident rows(28)\n"
    " role consumer {\n"
    "  v = f32(x[m*20 : +20 < n, :])\n"
    "  rows = t[i[m*20 : +20], :]\n"
    "  g = where(v > rows, v, rows * s)\n"
    "  big = g > 0.25\n"
    "  c[0] = g\n"
    "  c[1] = abs(v)\n"
    "  sync()\n"
    "  least = min(c[1], axis = 1)\n"
    "  mean = sum(g, axis = 0) / 20\n"
    "  q = concat(g[:, 0 : +8], c[0][:, 8 : +16] + least, axis = 1)\n"
    "  y[m*20 : +20, :] += q - mean\n"
    "  z[m*20 : +20, :] = u8(where(big, abs(g) * 100, 0.0))\n"
    " }\n"
    "}\n"
    "tile cube(x: in f32[4, 6, 10], y: out f32[4, 10], z: out f32[6, 4]) over (one in 1) {\n"
    " role consumer {\n"
    "  v = x\n"
    "  k: i32 = 0\n"
    "  for j in 3 { if j != 1 { v = v * 1.5 - f32(j); k = k + 1 } }\n"
    "  y[:, :] = reshape(max(v, axis = 1), 4, 10) + f32(k)\n"
    "  z[:, :] = reshape(sum(v, 2), 4, 6).T * f32[6, 4](0.5)\n"
    " }\n"
    "}\n"
    "tile halves[K = 96](x: in f16[M, K], w: in f16[24, K], y: out f16[M, 24]) over (m in ceil(M / 64)) {\n"
    " shared a[2]: f16[64, 32] pages rows(40)\n"
    " shared b[2]: f16[24, 32] pages swizzle(64)\n"
    " barrier full[2] (loader)\n"
    " barrier empty[2] (consumer)\n"
    " role loader { for k in K / 32 { s = k % 2; wait(empty[s], k / 2 - 1); expect(full[s], 64*32*2 + 24*32*2); "
    "copy(a[s], x[m*64 : +64, k*32 : +32], full[s]); copy(b[s], w[:, k*32 : +32], full[s]) } }\n"
    " role consumer { reg acc: f32[64, 24] in local(1, 3).spatial(4, 1).replicated(2).local(2, 1).spatial(8, "
    "4).local(1, 2) = 0\n"
    "  for k in stream(K / 32) { wait(full[k % 2], k / 2); mma(acc, a[k % 2], b[k % 2].T); arrive(empty[k % 2]) }\n"
    "  y[m*64 : +64, :] = f16(acc) }\n"
    "}\n";

/* The last columns come first: what the loader writes itself, behind them, copies overwrite in the next round, and
 * those of other instructions. */
static const char tails[] =
    "tile tails[K = 104](x: in f16[M, K], w: in f16[32, K], y: out f32[M, 32]) over (m in ceil(M / 64)) {\n"
    " shared a: f16[64, 32] pages rows(40)\n"
    " shared b: f16[32, 32] pages rows(40)\n"
    " barrier full (loader)\n"
    " barrier empty (consumer)\n"
    " role loader { for j in 4 { k = 3 - j; wait(empty, j - 1); expect(full, 64*32*2 + 32*32*2); "
    "copy(a, x[m*64 : +64, k*32 : +32], full); copy(b, w[:, k*32 : +32], full) } }\n"
    " role consumer { acc: f32[64, 32] = 0\n"
    "  for j in 4 { wait(full, j); mma(acc, a, b.T); arrive(empty) }\n"
    "  y[m*64 : +64, :] = acc }\n"
    "}\n";

static void test_tails(void **state) {
    (void)state;
    mt_tile *file;
    OK(mt_tile_parse(&file, "tails.tile", tails, sizeof tails - 1, NULL, &error_));
    array arrays[] = {{.name = "x", .type = "f16", .role = MT_INPUT, .rank = 2, .extent = {75, 104}},
                      {.name = "w", .type = "f16", .role = MT_INPUT, .rank = 2, .extent = {32, 104}},
                      {.name = "u", .type = "f16", .role = MT_WEIGHT, .rank = 2, .extent = {32, 104}},
                      {.name = "z", .type = "f16", .role = MT_OUTPUT, .rank = 2, .extent = {75, 32}},
                      {.name = "y", .type = "f32", .role = MT_OUTPUT, .rank = 2, .extent = {75, 32}}};
    const node nodes[] = {{"tails", {"x=x", "w=w", "y=y"}}, {"*linear", {"x=x", "w=u", "y=z", "P=f16"}}};
    check(file, nodes, 2, arrays, 5, linear, 1e-4, 3);
    mt_tile_close(file);
}

static void test_various(void **state) {
    (void)state;
    mt_tile *file;
    OK(mt_tile_parse(&file, "various.tile", various, sizeof various - 1, NULL, &error_));
    array layouts[] = {{.name = "x", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {128, 64}},
                       {.name = "w", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {64, 64}},
                       {.name = "y", .type = "f32", .role = MT_OUTPUT, .rank = 2, .extent = {64, 128}}};
    check(file, &(node){"layouts", {"x=x", "w=w", "y=y"}}, 1, layouts, 3, NULL, 1e-4, 3);
    array types[] = {{.name = "x", .type = "f16", .role = MT_INPUT, .rank = 2, .extent = {33, 24}},
                     {.name = "i", .type = "i32", .role = MT_INPUT, .rank = 1, .extent = {33}},
                     {.name = "t", .type = "f32", .role = MT_INPUT, .rank = 2, .extent = {7, 24}},
                     {.name = "z", .type = "u8", .role = MT_OUTPUT, .rank = 2, .extent = {33, 24}},
                     {.name = "y", .type = "f32", .role = MT_STATE, .rank = 2, .extent = {33, 24}}};
    check(file, &(node){"types", {"x=x", "i=i", "t=t", "n=29", "s=1.25", "y=y", "z=z"}}, 1, types, 5, NULL, 1e-4, 3);
    const array last = types[3]; /* the other output */
    types[3] = types[4];
    types[4] = last;
    check(file, &(node){"types", {"x=x", "i=i", "t=t", "n=29", "s=1.25", "y=y", "z=z"}}, 1, types, 5, NULL, 1e-4, 3);
    array cube[] = {{.name = "x", .type = "f32", .role = MT_INPUT, .rank = 3, .extent = {4, 6, 10}},
                    {.name = "z", .type = "f32", .role = MT_OUTPUT, .rank = 2, .extent = {6, 4}},
                    {.name = "y", .type = "f32", .role = MT_OUTPUT, .rank = 2, .extent = {4, 10}}};
    check(file, &(node){"cube", {"x=x", "y=y", "z=z"}}, 1, cube, 3, NULL, 1e-5, 3);
    array halves[] = {{.name = "x", .type = "f16", .role = MT_INPUT, .rank = 2, .extent = {65, 96}},
                      {.name = "w", .type = "f16", .role = MT_INPUT, .rank = 2, .extent = {24, 96}},
                      {.name = "y", .type = "f16", .role = MT_OUTPUT, .rank = 2, .extent = {65, 24}}};
    check(file, &(node){"halves", {"x=x", "w=w", "y=y"}}, 1, halves, 3, linear, 2e-3, COUNT_OF(schedules));
    mt_tile_close(file);
}

static void replace(text *out, const char *source, const char *piece, const char *by) {
    const char *at = strstr(source, piece);
    assert_non_null(at);
    text_append(out, source, (size_t)(at - source));
    text_string(out, by);
    text_string(out, at + strlen(piece));
    assert_false(out->failed);
}

/* A text with a piece of it replaced. */
static mt_tile *edited(const char *source, const char *piece, const char *by) {
    text t = {0};
    mt_tile *file;
    replace(&t, source, piece, by);
    OK(mt_tile_parse(&file, "broken.tile", t.data, t.length, NULL, &error_));
    text_free(&t);
    return file;
}

/* examples/level2.tile with a piece of its text replaced. */
static mt_tile *broken(const char *piece, const char *by) {
    text whole = {0};
    OK(file_read(&whole, MONOTILE_SOURCE_FOLDER "/examples/level2.tile", 1 << 20, &error_));
    mt_tile *file = edited(whole.data, piece, by);
    text_free(&whole);
    return file;
}

/* ---- storers ---- */

static double silu_mul(const array *a, const int64_t *at) {
    const size_t i = (size_t)(at[0] * a[0].extent[1] + at[1]);
    const double v = value_of(&a[0], i);
    return v / (1 + exp(-v)) * value_of(&a[1], i);
}

/* A copy that the consumers only watch, into one of several heads; a storer without a loader, of a tile of one
 * dimension. */
static const char storing[] =
    "tile into[D = 40](x: in f32[M, D], h: arg i32, y: inout f32[M, H, D]) over (m in ceil(M / 32)) {\n"
    " shared a[2]: f32[16, D] pages\n"
    " barrier full[2] (loader)\n"
    " role loader { for i in 2 { expect(full[i], 16*D*4); copy(a[i], x[m*32 + i*16 : +16, :], full[i]) } }\n"
    " role storer { for i in 2 { wait(full[i], 0); store(y[m*32 + i*16 : +16, h, :], a[i]); commit() }; wait_group(1) "
    "}\n"
    " role consumer {}\n"
    "}\n"
    "tile twice(x: in bf16[M, 16], y: out bf16[M, 16]) over (m in ceil(M / 8)) {\n"
    " shared c: bf16[8, 16]\n"
    " barrier made (consumer)\n"
    " role consumer { c = bf16(f32(x[m*8 : +8, :]) * 2.0); arrive(made) }\n"
    " role storer { wait(made, 0); store(y[m*8 : +8, :], c) }\n"
    "}\n"
    "tile sums(x: in f32[64, N], y: out f32[N]) over (n in ceil(N / 64)) {\n"
    " shared c: f32[64]\n"
    " barrier made (consumer)\n"
    " role consumer { c = reshape(sum(x[:, n*64 : +64], axis = 0), 64); arrive(made) }\n"
    " role storer { wait(made, 0); store(y[n*64 : +64], c) }\n"
    "}\n";

static double into(const array *a, const int64_t *at) {
    return at[1] == 1 ? value_of(&a[0], (size_t)(at[0] * 40 + at[2]))
                      : value_of(&a[1], (size_t)((at[0] * 3 + at[1]) * 40 + at[2])); /* only the CPU's is like it */
}
static double column(const array *a, const int64_t *at) {
    double sum = 0;
    for (int64_t i = 0; i < 64; i++) sum += value_of(&a[0], (size_t)(i * a[0].extent[1] + at[0]));
    return sum;
}

/* Of what a storer has stored. */
static double stored_linear(const array *a, const int64_t *at) {
    double sum = 0;
    for (int64_t k = 0; k < a[0].extent[1]; k++) {
        const double made = silu_mul(a, (int64_t[]){at[0], k});
        const uint32_t bits = (uint32_t)bf16_of((float)made) << 16;
        float stored;
        memcpy(&stored, &bits, 4);
        sum += stored * value_of(&a[2], (size_t)(at[1] * a[0].extent[1] + k));
    }
    return sum;
}

static void test_storer(void **state) {
    (void)state;
    mt_tile *file = open_examples(), *own;
    array chained[] = {{.name = "g", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {100, 264}},
                       {.name = "u", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {100, 264}},
                       {.name = "w", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {24, 264}},
                       {.name = "t", .type = "bf16", .role = MT_TEMP, .rank = 2, .extent = {100, 264}},
                       {.name = "y", .type = "f32", .role = MT_OUTPUT, .rank = 2, .extent = {100, 24}}};
    const node nodes[] = {{"silu_mul2", {"g=g", "u=u", "y=t"}}, {"matmul2", {"x=t", "w=w", "y=y"}}};
    check(file, nodes, 2, chained, 5, stored_linear, 1e-2, COUNT_OF(schedules));
    static const int64_t sizes[][2] = {{33, 1000}, {7, 264}, {16, 301}, {1, 1}}; /* rows of 301 are not aligned */
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        array arrays[] = {{.name = "g", .type = "bf16", .role = MT_INPUT, .rank = 2},
                          {.name = "u", .type = "bf16", .role = MT_INPUT, .rank = 2},
                          {.name = "y", .type = "bf16", .role = MT_OUTPUT, .rank = 2}};
        for (int k = 0; k < 3; k++) memcpy(arrays[k].extent, sizes[i], sizeof sizes[i]);
        check(file, &(node){"silu_mul2", {"g=g", "u=u", "y=y"}}, 1, arrays, 3, silu_mul, 4e-3,
              i == 0 ? COUNT_OF(schedules) : 3);
    }
    mt_tile_close(file);
    OK(mt_tile_parse(&own, "storing.tile", storing, sizeof storing - 1, NULL, &error_));
    array heads[] = {{.name = "x", .type = "f32", .role = MT_INPUT, .rank = 2, .extent = {45, 40}},
                     {.name = "y", .type = "f32", .role = MT_STATE, .rank = 3, .extent = {45, 3, 40}}};
    check(own, &(node){"into", {"x=x", "h=1", "y=y"}}, 1, heads, 2, into, 0, COUNT_OF(schedules));
    for (int64_t n = 63; n <= 200; n += 137) {
        array vector[] = {{.name = "x", .type = "f32", .role = MT_INPUT, .rank = 2, .extent = {64, n}},
                          {.name = "y", .type = "f32", .role = MT_OUTPUT, .rank = 1, .extent = {n}}};
        check(own, &(node){"sums", {"x=x", "y=y"}}, 1, vector, 2, column, 1e-5, COUNT_OF(schedules));
    }
    mt_tile_close(own);
    if (getenv("LEVEL2_MACHINE")) skip();
    static const struct {
        const char *piece, *by, *machine, *says;
    } mistakes[] = {{"wait(stored[s], n / STAGES - 1)", "if n > 9 { wait(stored[s], 0) }",
                     "sim:1,adversarial=loader-late", "deadlock"},
                    {"wait(made[s], n / STAGES)", "if n > 9 { wait(made[s], 0) }", "sim:1", "a bulk store reads"},
                    {"wait_group(1)\n            if n > 0 { arrive(stored[(n - 1) % STAGES]) }", "arrive(stored[s])",
                     "sim:1,adversarial=starve-warp", "which a bulk store may still read"}};
    for (size_t i = 0; i < COUNT_OF(mistakes); i++) {
        array arrays[] = {{.name = "g", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {16, 1024}},
                          {.name = "u", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {16, 1024}},
                          {.name = "y", .type = "bf16", .role = MT_OUTPUT, .rank = 2, .extent = {16, 1024}}};
        mt_error error = {0};
        file = broken(mistakes[i].piece, mistakes[i].by);
        for (int k = 0; k < 3; k++) make(&arrays[k]);
        const node one = {"silu_mul2", {"g=g", "u=u", "y=y"}};
        if (run(mistakes[i].machine, file, &one, 1, arrays, 3, &error) == MT_OK ||
            !strstr(error.message, mistakes[i].says))
            fail_msg("%s: %s", mistakes[i].by, error.message);
        for (int k = 0; k < 3; k++) free(arrays[k].data);
        mt_tile_close(file);
    }
}

/* ---- atomics ---- */

/* Counts of numbers; the rest of what atomics can do. */
static const char atomics[] =
    "tile fill[V = 0, T = i32](y: out T[N]) over (n in ceil(N / 16)) { y[n*16 : +16] = T(V) }\n"
    "tile count(x: in i32[M], y: inout i32[N]) over (m in ceil(M / 24)) {\n"
    " unordered y\n"
    " role consumer {\n"
    "  bin = where(i32(m*24) + iota(24) < i32(M), x[m*24 : +24], -1)\n" /* none, behind the end */
    "  atomic_add(y[bin], 1, relaxed, gpu)\n"
    " }\n"
    "}\n"
    "tile others(x: in i32[M], y: inout i32[N], z: inout u32[N]) over (m in ceil(M / 8)) {\n"
    " unordered y, z\n"
    " role consumer {\n"
    "  v = x[m*8 : +8]\n"
    "  atomic_min(y[0 : +1], min(v, axis = 0), relaxed, gpu)\n"
    "  atomic_max(y[1 : +1], max(v, axis = 0), release, gpu)\n"
    "  atomic_and(y[2 : +2], i32[2](-1) - (1 << i32(m)), relaxed, gpu)\n"
    "  atomic_or(z[0], u32(1 << i32(m)), relaxed, gpu)\n"
    "  atomic_max(z[1], u32(m * 1000000000), relaxed, gpu)\n"
    "  atomic_min(z[2], 4000000000 - u32(m), relaxed, gpu)\n"
    "  before: u32 = 5\n"
    "  atomic_exchange(z[3], 7, acquire, gpu, before)\n"
    "  atomic_add(z[4 : +3], u32(where(before == 7, 10, 1)), relaxed, gpu)\n"
    "  atomic_add(z[m*2 + 8], 3, relaxed, cta)\n"
    "  atomic_add(z[m*2 + 60], 3, relaxed, cta)\n" /* outside */
    " }\n"
    "}\n";

static double counted(const array *a, const int64_t *at) {
    double n = 0;
    for (size_t i = 0; i < a[0].count; i++) n += value_of(&a[0], i) == (double)at[0];
    return n;
}
static double total(const array *a, const int64_t *at) {
    double sum = 0;
    for (size_t i = 0; i < (size_t)a[0].extent[0]; i++)
        sum += value_of(&a[0], i * (size_t)a[0].extent[1] + (size_t)at[0]);
    return sum;
}

static double other(const array *a, const int64_t *at) {
    double least = -1, most = -1;
    for (size_t i = 0; i < a[0].count; i++)
        least = fmin(least, value_of(&a[0], i)), most = fmax(most, value_of(&a[0], i));
    const double y[16] = {least, most, -32, -32, [4 ... 15] = -1};
    const double z[16] = {31, 4e9, 0, 7, 41, 41, 41, 0, 3, 0, 3, 0, 3, 0, 3};
    return a[2].type[0] == 'i' ? y[at[0]] : z[at[0]];
}

static void test_atomics(void **state) {
    (void)state;
    mt_tile *file;
    OK(mt_tile_parse(&file, "atomics.tile", atomics, sizeof atomics - 1, NULL, &error_));
    array counting[] = {{.name = "x", .type = "i32", .role = MT_INPUT, .rank = 1, .extent = {211}},
                        {.name = "y", .type = "i32", .role = MT_OUTPUT, .rank = 1, .extent = {7}}};
    const node count[] = {{"fill", {"y=y"}}, {"count", {"x=x", "y=y"}}};
    check(file, count, 2, counting, 2, counted, 0, COUNT_OF(schedules));
    array adding[] = {{.name = "x", .type = "f32", .role = MT_INPUT, .rank = 2, .extent = {200, 100}},
                      {.name = "t", .type = "f32", .role = MT_TEMP, .rank = 2, .extent = {3, 100}},
                      {.name = "n", .type = "i32", .role = MT_TEMP, .rank = 1, .extent = {16}},
                      {.name = "y", .type = "f32", .role = MT_OUTPUT, .rank = 1, .extent = {100}}};
    const node add[] = {{"fill", {"y=n"}}, {"column_sums2", {"x=x", "t=t", "come=n", "y=y", "PARTS=3"}}};
    text examples = {0};
    OK(file_read(&examples, MONOTILE_SOURCE_FOLDER "/examples/level2.tile", 1 << 20, &error_));
    text_append(&examples, atomics, strcspn(atomics, "\n") + 1);
    mt_tile *sums = edited(examples.data, "", "");
    const mt_constant parts = {.name = "PARTS", .value = 3};
    char *shown;
    OK(mt_tile_lower((const mt_tile *)sums, "column_sums2", &parts, 1, 0, &shown, NULL, &error_));
    assert_non_null(strstr(shown, "atomic_add(come[n : +1], i32[1](1), acq_rel, gpu, before)"));
    free(shown);
    check(sums, add, 2, adding, 4, total, 1e-5, COUNT_OF(schedules));
    mt_tile_close(sums);
    array y = {.name = "y", .type = "i32", .role = MT_OUTPUT, .rank = 1, .extent = {16}}, z = y;
    z.name = "z";
    z.type = "u32";
    for (int last = 0; last < 2; last++) {
        array all[] = {
            {.name = "x", .type = "i32", .role = MT_INPUT, .rank = 1, .extent = {40}}, last ? y : z, last ? z : y};
        const node nodes[] = {{"fill", {"y=y", "V=-1"}}, {"fill", {"y=z"}}, {"others", {"x=x", "y=y", "z=z"}}};
        check(file, nodes, 3, all, 3, other, 0, COUNT_OF(schedules));
    }
    mt_tile_close(file);
    if (getenv("LEVEL2_MACHINE")) {
        text_free(&examples);
        skip();
    }
    /* The scheduler orders what is not unordered. */
    text ordered = {0};
    replace(&ordered, examples.data, "unordered t, come, y\n", "");
    sums = edited(ordered.data, "acq_rel, gpu, before", "relaxed, gpu, before");
    check(sums, add, 2, adding, 4, total, 1e-5, 3);
    mt_tile_close(sums);
    text_free(&ordered);
    /* An order or a scope that is too weak for what others read. */
    static const char *const weak[] = {"relaxed, gpu, before", "release, gpu, before", "acquire, gpu, before",
                                       "acq_rel, cta, before"};
    for (size_t i = 0; i < COUNT_OF(weak); i++) {
        mt_error error = {0};
        file = edited(examples.data, "acq_rel, gpu, before", weak[i]);
        for (int k = 0; k < 4; k++) make(&adding[k]);
        if (run("sim:3", file, add, 2, adding, 4, &error) == MT_OK || !strstr(error.message, "race"))
            fail_msg("%s: %s", weak[i], error.message);
        for (int k = 0; k < 4; k++) free(adding[k].data);
        mt_tile_close(file);
    }
    text_free(&examples);
}

/* ---- register budgets ---- */

static void test_budgets(void **state) {
    (void)state;
    text whole = {0}, one = {0};
    OK(file_read(&whole, MONOTILE_SOURCE_FOLDER "/examples/level2.tile", 1 << 20, &error_));
    array arrays[] = {{.name = "x", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {129, 200}},
                      {.name = "w", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {65, 200}},
                      {.name = "y", .type = "bf16", .role = MT_OUTPUT, .rank = 2, .extent = {129, 65}}};
    mt_tile *file =
        edited(whole.data, "role consumer (warpgroups = 2)", "role consumer (warpgroups = 2, registers = 216)");
    check(file, &(node){"matmul2_wgmma", {"x=x", "w=w", "y=y"}}, 1, arrays, 3, linear, 4e-3, 3);
    mt_tile_close(file);
    /* Others have what is left; the storer's budget is the loader's. */
    array streams[] = {{.name = "g", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {33, 520}},
                       {.name = "u", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {33, 520}},
                       {.name = "y", .type = "bf16", .role = MT_OUTPUT, .rank = 2, .extent = {33, 520}}};
    replace(&one, whole.data, "role storer {", "role storer (registers = 88) {");
    file = edited(one.data, "role consumer (warpgroups = 2)", "role consumer (warpgroups = 2, registers = 232)");
    check(file, &(node){"silu_mul2", {"g=g", "u=u", "y=y"}}, 1, streams, 3, silu_mul, 4e-3, 3);
    /* Two ops that one kernel cannot have both. */
    array two[] = {{.name = "x", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {16, 16}},
                   {.name = "y", .type = "bf16", .role = MT_OUTPUT, .rank = 2, .extent = {16, 16}},
                   {.name = "z", .type = "bf16", .role = MT_OUTPUT, .rank = 2, .extent = {16, 16}}};
    const node nodes[] = {{"matmul2_wgmma", {"x=x", "w=x", "y=y"}}, {"silu_mul2", {"g=x", "u=x", "y=z"}}};
    for (int k = 0; k < 3; k++) make(&two[k]);
    mt_error error = {0};
    const char *only = getenv("LEVEL2_MACHINE");
    if (!only || strncmp(only, "cpu", 3)) {
        assert_int_equal(run(only ? only : "sim:1", file, nodes, 2, two, 3, &error), MT_E_LIMIT);
        assert_non_null(
            strstr(error.message, "'matmul2_wgmma' wants 232 a thread for the consumers, and op 'silu_mul2' 88"));
    }
    if (!only) OK(run("cpu:1", file, nodes, 2, two, 3, &error_));
    for (int k = 0; k < 3; k++) free(two[k].data);
    mt_tile_close(file);
    text_free(&one);
    text_free(&whole);
}

/* ---- stamped data ---- */

/* All that the others leave, in two dimensions and with a part that lies outside; a NaN is no stamp. */
static const char stamped[] =
    "tile clear[D = 6](t: inout f32[P, D]) over (p in P) { role consumer { stamp(t[p, :]) } }\n"
    "tile all(x: in f32[P, 6], t: inout f32[P, 6], y: out f32[P, 16]) over (p in 5) {\n"
    " unordered t, y\n"
    " role consumer {\n"
    "  nan = x[0, 0] * 0.0 / 0.0\n"
    "  post(t[p : +1, 0 : +4], x[p : +1, 0 : +4] * 2.0)\n"
    "  post(t[p, 4 : +2], nan)\n"
    "  v: f32[8, 16] = 1\n"
    "  if p == 4 { take(v, t[0 : +8, 0 : +16]); y[0 : +8, :] = where(v == v, v, -1.0) }\n"
    " }\n"
    "}\n";

static double running(const array *a, const int64_t *at) {
    double sum = 0;
    for (int64_t i = 0; i < min_i64(at[0] * 16 + 16, a[0].extent[0]); i++)
        sum += value_of(&a[0], (size_t)(i * 64 + at[1]));
    return sum;
}
static double all_taken(const array *a, const int64_t *at) {
    return at[1] < 4 ? 2 * value_of(&a[0], (size_t)(at[0] * 6 + at[1])) : at[1] < 6 ? -1 : 0;
}

static void test_stamped(void **state) {
    (void)state;
    mt_tile *file = open_examples();
    array sums[] = {{.name = "x", .type = "f32", .role = MT_INPUT, .rank = 2, .extent = {90, 64}},
                    {.name = "t", .type = "f32", .role = MT_TEMP, .rank = 2, .extent = {6, 64}},
                    {.name = "y", .type = "f32", .role = MT_OUTPUT, .rank = 2, .extent = {6, 64}}};
    const node nodes[] = {{"stamp2", {"t=t"}}, {"running2", {"x=x", "t=t", "y=y"}}};
    check(file, nodes, 2, sums, 3, running, 1e-5, COUNT_OF(schedules));
    mt_tile_close(file);
    OK(mt_tile_parse(&file, "stamped.tile", stamped, sizeof stamped - 1, NULL, &error_));
    array five[] = {{.name = "x", .type = "f32", .role = MT_INPUT, .rank = 2, .extent = {5, 6}},
                    {.name = "t", .type = "f32", .role = MT_TEMP, .rank = 2, .extent = {5, 6}},
                    {.name = "y", .type = "f32", .role = MT_OUTPUT, .rank = 2, .extent = {5, 16}}};
    const node takes[] = {{"clear", {"t=t"}}, {"all", {"x=x", "t=t", "y=y"}}};
    check(file, takes, 2, five, 3, all_taken, 1e-6, COUNT_OF(schedules));
    mt_tile_close(file);
    if (getenv("LEVEL2_MACHINE")) skip();
    static const struct {
        const char *piece, *by, *says;
    } mistakes[] = {{"post(t[p, :], before + mine)", "t[p, :] = before + mine", "race"},
                    {"post(t[p, :], before + mine)", "if p != 2 { post(t[p, :], before + mine) }", "deadlock"}};
    for (size_t i = 0; i < COUNT_OF(mistakes); i++) {
        mt_error error = {0};
        file = broken(mistakes[i].piece, mistakes[i].by);
        for (int k = 0; k < 3; k++) make(&sums[k]);
        if (run("sim:2", file, nodes, 2, sums, 3, &error) == MT_OK || !strstr(error.message, mistakes[i].says))
            fail_msg("%s: %s", mistakes[i].by, error.message);
        for (int k = 0; k < 3; k++) free(sums[k].data);
        mt_tile_close(file);
    }
}

/* ---- mistakes that show when roles run ---- */

static void test_mistakes(void **state) {
    (void)state;
    if (getenv("LEVEL2_MACHINE")) skip();
    static const struct {
        const char *piece, *by, *machine, *says;
    } cases[] = {
        /* nobody frees a stage */
        {"arrive(empty[s])\n", "if k > 100 { arrive(empty[s]) }\n", "cpu:1",
         "no role can go on: role loader waits for empty at line 13; role consumer waits for full at line 23"},
        {"arrive(empty[s])\n", "if k > 100 { arrive(empty[s]) }\n", "sim:1", "deadlock"},
        /* a wait for a phase that never comes */
        {"wait(full[s], k / STAGES)", "wait(full[s], k / STAGES + 1)", "cpu:1", "no role can go on"},
        /* a stage is read before it is full */
        {"wait(full[s], k / STAGES)", "if k != 4 { wait(full[s], k / STAGES) }", "sim:1,adversarial=copies-late",
         "it is not full"},
        /* a stage is filled before it is empty */
        {"wait(empty[s], k / STAGES - 1)", "if k < 3 { wait(empty[s], k / STAGES - 1) }",
         "sim:1,adversarial=loader-early", ""},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        mt_tile *file = broken(cases[i].piece, cases[i].by);
        array arrays[] = {{.name = "x", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {128, 640}},
                          {.name = "w", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {64, 640}},
                          {.name = "y", .type = "f32", .role = MT_OUTPUT, .rank = 2, .extent = {128, 64}}};
        for (int k = 0; k < 3; k++) make(&arrays[k]);
        mt_error error = {0};
        const mt_status status =
            run(cases[i].machine, file, &(node){"matmul2", {"x=x", "w=w", "y=y"}}, 1, arrays, 3, &error);
        if (status == MT_OK || !strstr(error.message, cases[i].says))
            fail_msg("%s: %s; expected %s", cases[i].by, status ? error.message : "nothing found", cases[i].says);
        for (int k = 0; k < 3; k++) free(arrays[k].data);
        mt_tile_close(file);
    }
    /* A ring that is too short for what an instruction holds. */
    mt_tile *file = open_examples();
    array arrays[] = {{.name = "x", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {8, 64}},
                      {.name = "w", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {8, 64}},
                      {.name = "y", .type = "f32", .role = MT_OUTPUT, .rank = 2, .extent = {8, 8}}};
    for (int k = 0; k < 3; k++) make(&arrays[k]);
    mt_error error = {0};
    assert_int_equal(run("sim:1,pages=5", file, &(node){"matmul2", {"x=x", "w=w", "y=y"}}, 1, arrays, 3, &error),
                     MT_E_LIMIT);
    for (int k = 0; k < 3; k++) free(arrays[k].data);
    mt_tile_close(file);
}

/* The proxies: what copies and wgmma read, and what they overwrite, has to be fenced when it was written in the
 * ordinary way; and what wgmma may still read may not be written. */
static const char resident[] =
    "tile resident(x: in bf16[256, 64], w: in bf16[64, 64], y: out f32[128, 64]) over (one in "
    "1) {\n"
    " shared a: bf16[128, 64] resident swizzle(128)\n"
    " shared b: bf16[64, 64] resident swizzle(128)\n"
    " role consumer {\n"
    "  acc: f32[128, 64] = 0\n"
    "  b = w\n"
    "  for i in 2 {\n"
    "   a = x[i*128 : +128, :]\n"
    "   sync()\n"
    "   wgmma(acc, a, b.T)\n"
    "   commit()\n"
    "   wait_group(0)\n"
    "   sync()\n"
    "  }\n"
    "  y[:, :] = acc\n"
    " }\n"
    "}\n";

static double both(const array *a, const int64_t *at) {
    double sum = 0;
    for (size_t i = 0; i < 128; i++)
        sum += value_of(&a[0], ((size_t)at[0] + i / 64 * 128) * 64 + i % 64) *
               value_of(&a[1], (size_t)at[1] * 64 + i % 64);
    return sum;
}

static void test_proxies(void **state) {
    (void)state;
    mt_tile *example = open_examples(), *tail, *own, *stores;
    OK(mt_tile_parse(&stores, "storing.tile", storing, sizeof storing - 1, NULL, &error_));
    OK(mt_tile_parse(&tail, "tails.tile", tails, sizeof tails - 1, NULL, &error_));
    OK(mt_tile_parse(&own, "resident.tile", resident, sizeof resident - 1, NULL, &error_));
    array good[] = {{.name = "x", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {256, 64}},
                    {.name = "w", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {64, 64}},
                    {.name = "y", .type = "f32", .role = MT_OUTPUT, .rank = 2, .extent = {128, 64}}};
    check(own, &(node){"resident", {"x=x", "w=w", "y=y"}}, 1, good, 3, both, 1e-5, 4);
    if (getenv("LEVEL2_MACHINE")) skip();
    const struct {
        bug bug;
        const mt_tile *file;
        node nodes[2];
        int64_t m, n, k;
        const char *machine, *says[3];
    } cases[] = {
        {.bug = {"void mt_fence_shared(void)", "mt_calls->fence_proxy(SIM_SPACE_SHARED);", ""},
         example,
         {{"matmul2_wgmma", {"x=x", "w=w", "y=y"}}},
         130,
         40,
         100,
         "sim:1",
         {"proxy", "a wgmma of consumer warp", "loader wrote in the ordinary way"}},
        {.bug = {"mt_rows_begin", "mt_fence_shared();", ""},
         tail,
         {{"tails", {"x=x", "w=w", "y=f"}}},
         75,
         32,
         104,
         "sim:1",
         {"proxy", "a copy writes page", "loader wrote in the ordinary way"}},
        {.bug = {"mt_operands_ready", "mt_fence_copies();", ""},
         example,
         {{"matmul2_wgmma", {"x=x", "w=w", "y=t"}}, {"matmul2", {"x=t", "w=v", "y=f"}}},
         130,
         40,
         40,
         "sim:2",
         {"proxy", "a copy reads t", "matmul2_wgmma"}},
        {.bug = {"void mt_op_make(", "mt_mbarrier_publish();", ""},
         example,
         {{"matmul2", {"x=x", "w=w", "y=f"}}},
         64,
         64,
         64,
         "sim:1",
         {"proxy", "is to arrive at", "made it an mbarrier"}},
        {.bug = {"void mt_fence_shared(void)", "mt_calls->fence_proxy(SIM_SPACE_SHARED);", ""},
         own,
         {{"resident", {"x=x", "w=w", "y=f"}}},
         128,
         64,
         64,
         "sim:1,random=1",
         {"proxy", "a wgmma of consumer warp", "in the ordinary way at resident.tile:"}},
        {.bug = {"op0_resident_run", "mt_wgmma_wait<0>", "mt_wgmma_wait<1>"},
         own,
         {{"resident", {"x=x", "w=w", "y=f"}}},
         128,
         64,
         64,
         "sim:1,adversarial=starve-warp",
         {"proxy", "may still read", "it was not waited for"}},
        {.bug = {"op0_matmul2_wgmma_run", "mt_wgmma_wait<1>", "mt_wgmma_wait<2>"},
         example,
         {{"matmul2_wgmma", {"x=x", "w=w", "y=y"}}},
         128,
         128,
         640,
         "sim:1",
         {"page", "is filled again", "a wgmma of consumer warp"}},
        {.bug = {"op0_silu_mul2_run", "mt_fence_shared();", ""},
         example,
         {{"silu_mul2", {"g=x", "u=w", "y=y"}}},
         520,
         520,
         520,
         "sim:1",
         {"proxy", "a bulk store reads", "in the ordinary way"}},
        {.bug = {"op0_silu_mul2_store", "mt_bulk_read<1>", "mt_bulk_read<2>"},
         example,
         {{"silu_mul2", {"g=x", "u=w", "y=y"}}},
         520,
         520,
         520,
         "sim:1",
         {"proxy", "a bulk store may still read", "it was not waited for"}},
        {.bug = {"void mt_stored(", "mt_bulk_wait();", ""},
         example,
         {{"silu_mul2", {"g=x", "u=w", "y=y"}}},
         16,
         16,
         16,
         "sim:1",
         {"bytes", "ends with 1", "bulk stores under way"}},
        {.bug = {"void mt_rows_store(", "mt_fence_copies();", ""},
         stores,
         {{"*add", {"a=x", "b=w", "y=y"}}, {"twice", {"x=x", "y=y"}}},
         16,
         16,
         16,
         "sim:2",
         {"proxy", "a bulk store writes y", "in the ordinary way"}},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const int64_t m = cases[i].m, n = cases[i].n, k = cases[i].k, rows = cases[i].file == own ? 256 : m;
        const char *type = cases[i].file == tail ? "f16" : "bf16";
        array arrays[] = {{.name = "x", .type = type, .role = MT_INPUT, .rank = 2, .extent = {rows, k}},
                          {.name = "w", .type = type, .role = MT_INPUT, .rank = 2, .extent = {n, k}},
                          {.name = "v", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {n, n}},
                          {.name = "t", .type = "bf16", .role = MT_TEMP, .rank = 2, .extent = {m, n}},
                          {.name = "y", .type = "bf16", .role = MT_OUTPUT, .rank = 2, .extent = {m, n}},
                          {.name = "f", .type = "f32", .role = MT_OUTPUT, .rank = 2, .extent = {m, n}}};
        for (size_t a = 0; a < COUNT_OF(arrays); a++) make(&arrays[a]);
        mt_error error = {0};
        seeded = &cases[i].bug;
        const mt_status status = run(cases[i].machine, cases[i].file, cases[i].nodes,
                                     1 + (cases[i].nodes[1].program != NULL), arrays, COUNT_OF(arrays), &error);
        seeded = NULL;
        for (size_t w = 0; w < 3; w++)
            if (status == MT_OK || !strstr(error.message, cases[i].says[w]))
                fail_msg("%s: %s; expected %s", cases[i].bug.near, status ? error.message : "nothing found",
                         cases[i].says[w]);
        for (size_t a = 0; a < COUNT_OF(arrays); a++) free(arrays[a].data);
    }
    mt_tile_close(own);
    mt_tile_close(stores);
    mt_tile_close(tail);
    mt_tile_close(example);
}

/* ---- what the scheduler knows ---- */

static void test_summary(void **state) {
    (void)state;
    const tile_file *file = (const tile_file *)open_examples();
    const tile_op *op;
    arena *a = arena_new();
    const tile_constant constants[] = {{.name = "N", .value = 100}, {.name = "K", .value = 130}};
    OK(tile_bind(a, &op, file, "matmul2", constants, 2, NULL, &error_));
    tile_instance i = {.op = op};
    const int64_t extents[3][2] = {{200, 130}, {100, 130}, {200, 100}};
    for (int t = 0; t < 3; t++) i.tensor[t] = (tile_operand){.rank = 2, .extent = {extents[t][0], extents[t][1]}};
    OK(tile_instance_check(&i, &error_));
    tile_summary s;
    tile_summarise(&i, (int64_t[]){1, 1, 0, 0, 0}, &s); /* n, m */
    assert_int_equal(s.flops, (int64_t)2 * 128 * 64 * 64 * 3);
    assert_int_equal(s.box_count, 3);
    const int64_t expected[3][2][2] = {{{128, 200}, {0, 130}}, {{64, 100}, {0, 130}}, {{128, 200}, {64, 100}}};
    for (int b = 0; b < 3; b++)
        for (int d = 0; d < 2; d++) {
            const tile_box *box = &s.box[b];
            assert_int_equal(box->dim[d].low, expected[box->tensor][d][0]);
            assert_int_equal(box->dim[d].high, expected[box->tensor][d][1]);
            assert_int_equal(box->writes, box->tensor == 2);
        }
    arena_free(a);
    mt_tile_close((mt_tile *)file);
}

int main(void) {
    static char folder[TEMPORARY_BYTES];
    if (!temporary_make(folder)) return 1;
    setenv("MONOTILE_CACHE", folder, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),  cmocka_unit_test(test_matmul),  cmocka_unit_test(test_attention),
        cmocka_unit_test(test_chain),    cmocka_unit_test(test_atoms),   cmocka_unit_test(test_layouts_meet),
        cmocka_unit_test(test_tails),    cmocka_unit_test(test_various), cmocka_unit_test(test_storer),
        cmocka_unit_test(test_atomics),  cmocka_unit_test(test_stamped), cmocka_unit_test(test_budgets),
        cmocka_unit_test(test_mistakes), cmocka_unit_test(test_proxies), cmocka_unit_test(test_summary),
    };
    if (getenv("LEVEL2_ONLY")) cmocka_set_test_filter(getenv("LEVEL2_ONLY"));
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    temporary_remove(folder);
    return failed;
}
