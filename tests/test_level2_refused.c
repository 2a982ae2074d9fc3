/* Level 2 of the language: what is refused, where. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tile/explicit.h"

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
        {HEAD SHARED LOADER "role consumer { @wait(full[0], -2); wait(full[1], 0); arrive(empty[1]) }\n}",
         "phases are counted from 0 on, and -1 is over from the beginning; there is no -2"},
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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
