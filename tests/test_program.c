/* The program format and its checker: damaged files, programs that are wrong in one place, and the checker's verdict
 * on random programs with one wait taken away, against brute force over all pairs of instructions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "monotile/program.h"
#include "program/program_internal.h"

static const char tiles[] =
    "tile fill[R, C, BR = 2, BC = 4](y: out f32[R, C]) over (r in ceil(R / BR), c in ceil(C / BC))\n"
    "{ y[r*BR : +BR, c*BC : +BC] = f32[BR, BC](1) }\n"
    "tile copy[R, C, BR = 2, BC = 4](x: in f32[R, C], y: out f32[R, C]) over (r in ceil(R / BR), c in ceil(C / BC))\n"
    "{ y[r*BR : +BR, c*BC : +BC] = x[r*BR : +BR, c*BC : +BC] }\n"
    "tile scale[R, C, BR = 2](x: in f32[R, C], a: arg f32, y: out f32[R, C]) over (r in ceil(R / BR))\n"
    "{ y[r*BR : +BR, :] = x[r*BR : +BR, :] * a }\n"
    "tile add[R, C, BR = 2, BC = 4](x: in f32[R, C], z: in f32[R, C], y: out f32[R, C]) over (r in ceil(R / BR), c in "
    "ceil(C / BC))\n"
    "{ y[r*BR : +BR, c*BC : +BC] = x[r*BR : +BR, c*BC : +BC] + z[r*BR : +BR, c*BC : +BC] }\n"
    "tile total[R, C, M, N, BR = 2, BC = 4](x: in f32[M, N], y: out f32[R, C]) over (r in ceil(R / BR), c in ceil(C / "
    "BC))\n"
    "{ y[r*BR : +BR, c*BC : +BC] = f32[BR, BC](1) * sum(sum(x, 1), 0) }\n"
    "tile stencil[R, C, BR = 2](x: in f32[R, C], y: out f32[R, C]) over (r in ceil(R / BR))\n"
    "{ y[r*BR : +BR, :] = x[r*BR - 1 : +BR, :] + x[r*BR + 1 : +BR, :] }\n"
    "tile split[R, K, BR = 2, BK = 2](x: in f32[R, K], y: inout f32[R, 1]) over (r in ceil(R / BR), k in ceil(K / "
    "BK))\n"
    "{ y[r*BR : +BR, :] += sum(x[r*BR : +BR, k*BK : +BK], 1) }\n"
    "tile put[C](x: in f32[M, C], pos: live i32, y: out f32[S, C]) over (m in M)\n"
    "{ y[pos + m, :] = x[m, :] }\n"
    "tile take[C](x: in f32[S, C], pos: live i32, y: out f32[M, C]) over (m in M)\n"
    "{ y[m, :] = x[pos + m, :] }\n"
    "tile nibbles[R, C, BR = 1, BC = 3](x: in f32[R, C], y: out u4[R, C]) over (r in ceil(R / BR), c in ceil(C / BC))\n"
    "{ y[r*BR : +BR, c*BC : +BC] = u4(i32(x[r*BR : +BR, c*BC : +BC])) }\n";

static mt_tile *file;
static char folder[] = "/tmp/monotile-test-XXXXXX";

static int set_up(void **state) {
    (void)state;
    char *diagnostics = NULL;
    mt_error error = {0};
    if (mt_tile_parse(&file, "test.tile", tiles, strlen(tiles), &diagnostics, &error) != MT_OK)
        fail_msg("%s", diagnostics);
    free(diagnostics);
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    mt_tile_close(file);
    return rmdir(folder);
}

static void check_status(mt_status status, const mt_error *error) {
    if (status != MT_OK) fail_msg("%s: %s: %s", mt_status_name(status), error->where, error->message);
}

static uint64_t random_state;
static uint32_t draw(uint32_t below) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % below;
}

/* ---- graphs ---- */

static mt_tensor tensor(mt_graph *g, mt_role role, const char *name, const char *type, int64_t rows, int64_t columns) {
    mt_tensor t;
    mt_error error = {0};
    check_status(mt_graph_tensor(g, role, name, type, 2, (int64_t[]){rows, columns}, &t, &error), &error);
    return t;
}

static void node(mt_graph *g, const char *program, const char *name, const mt_operand *operands, size_t count) {
    mt_error error = {0};
    check_status(mt_graph_node(g, file, program, name, operands, count, NULL, &error), &error);
}
#define NODE(g, program, name, ...)                                                                                    \
    node(g, program, name, (mt_operand[]){__VA_ARGS__}, sizeof((mt_operand[]){__VA_ARGS__}) / sizeof(mt_operand))

static mt_program *compile(mt_graph *g, int processors, mt_placement placement) {
    mt_program *p;
    mt_error error = {0};
    check_status(
        mt_compile(g, &(mt_target){.processors = processors, .placement = placement, .no_fusion = 1}, &p, &error),
        &error);
    mt_graph_destroy(g);
    return p;
}

/* x -> scale -> s -> copy -> c -> add(x, c) -> t -> put at pos into a state; s and t can share a slot. */
static mt_program *small_program(mt_placement placement) {
    mt_graph *g;
    mt_live pos;
    mt_error error = {0};
    check_status(mt_graph_create(&g, &error), &error);
    check_status(mt_graph_live(g, "pos", 0, 3, &pos, &error), &error);
    const mt_tensor x = tensor(g, MT_INPUT, "x", "f32", 4, 6), k = tensor(g, MT_STATE, "k", "f32", 7, 6);
    const mt_tensor s = tensor(g, MT_TEMP, "s", "f32", 4, 6), c = tensor(g, MT_TEMP, "c", "f32", 4, 6),
                    t = tensor(g, MT_TEMP, "t", "f32", 4, 6);
    const mt_tensor y = tensor(g, MT_OUTPUT, "y", "f32", 4, 6);
    NODE(g, "scale", "first", MT_OPERAND("x", x), MT_OPERAND_FLOAT("a", 0.5f), MT_OPERAND("y", s),
         MT_OPERAND_INTEGER("BR", 2));
    NODE(g, "copy", "second", MT_OPERAND("x", s), MT_OPERAND("y", c), MT_OPERAND_INTEGER("BR", 2),
         MT_OPERAND_INTEGER("BC", 4));
    NODE(g, "add", "third", MT_OPERAND("x", x), MT_OPERAND("z", c), MT_OPERAND("y", t), MT_OPERAND_INTEGER("BR", 2),
         MT_OPERAND_INTEGER("BC", 4));
    NODE(g, "put", "fourth", MT_OPERAND("x", t), MT_OPERAND_LIVE("pos", pos), MT_OPERAND("y", k));
    NODE(g, "take", "fifth", MT_OPERAND("x", k), MT_OPERAND_LIVE("pos", pos), MT_OPERAND("y", y));
    return compile(g, 2, placement);
}

/* ---- copies that can be edited ---- */

typedef struct copy {
    uint8_t *bytes;
    size_t size;
    program_header *header;
    mt_program *p; /* into bytes: tables may be written through the casts below */
} copy;
#define TABLE(c, name, type) ((type *)(c)->p->name)

static copy copy_of(const mt_program *p) {
    copy c = {.size = p->header->file_bytes};
    mt_error error = {0};
    c.bytes = malloc(c.size);
    memcpy(c.bytes, p->header, c.size);
    c.header = (program_header *)c.bytes;
    check_status(program_decode(&c.p, c.bytes, c.size, "copy", &error), &error);
    return c;
}

static void copy_free(copy *c) {
    program_free(c->p);
    free(c->bytes);
}

static void seal(uint8_t *bytes, size_t size) {
    program_header *h = (program_header *)bytes;
    const hash128 hash = hash_bytes(bytes + sizeof *h, size - sizeof *h);
    h->hash[0] = hash.low;
    h->hash[1] = hash.high;
}

static mt_status open_again(copy *c, mt_error *error) {
    mt_program *p;
    seal(c->bytes, c->size);
    const mt_status status = program_open_memory(&p, c->bytes, c->size, "edited", error);
    if (status == MT_OK) program_free(p);
    else assert_null(p);
    return status;
}

/* The edited program must be refused with these words, and the copy is given up. */
static void refused(copy *c, const char *words) {
    mt_error error = {0};
    const mt_status status = open_again(c, &error);
    if (status == MT_OK) fail_msg("accepted, expected: %s", words);
    if (!strstr(error.message, words))
        fail_msg("expected '%s', got %s: %s", words, mt_status_name(status), error.message);
    copy_free(c);
}

/* ---- files ---- */

static void test_save_and_load(void **state) {
    (void)state;
    mt_program *p = small_program(MT_PLACE_STATIC), *q;
    mt_error error = {0};
    char path[64];
    snprintf(path, sizeof path, "%s/p.mono", folder);
    check_status(mt_program_save(p, path, &error), &error);
    check_status(mt_program_load(&q, path, &error), &error);
    assert_int_equal(q->header->file_bytes, p->header->file_bytes);
    assert_memory_equal(q->header, p->header, p->header->file_bytes);
    assert_int_equal(mt_program_instruction_count(q), p->instructions_count);
    assert_int_equal(mt_program_tensor_count(q), 3);
    mt_tensor_info info;
    for (size_t i = 0; i < 3; i++) {
        check_status(mt_program_tensor(q, i, &info, &error), &error);
        assert_string_equal(info.type, "f32");
        assert_int_equal(info.rank, 2);
        assert_int_equal(info.bytes, info.extent[0] * info.extent[1] * 4);
        assert_true(strstr("xky", info.name) != NULL);
    }
    assert_int_equal(mt_program_tensor(q, 3, &info, &error), MT_E_ARGUMENT);
    assert_non_null(strstr(error.message, "no tensor 3; the program has 3"));
    mt_program_destroy(q);

    assert_int_equal(mt_program_load(&q, folder, &error), MT_E_IO); /* a folder */
    assert_null(q);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(mt_program_load(&q, path, &error), MT_E_FORMAT);
    assert_non_null(strstr(error.message, "empty"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mt_program_load(&q, path, &error), MT_E_IO);
    mt_program_destroy(p);
    mt_program_destroy(NULL);
}

static void test_header(void **state) {
    (void)state;
    mt_program *p = small_program(MT_PLACE_STATIC), *q;
    mt_error error = {0};
    copy c;
    c = copy_of(p), c.header->magic[3] = 'X', refused(&c, "does not begin with");
    c = copy_of(p), c.header->version = 2, refused(&c, "version 2; this build reads version 1");
    c = copy_of(p), c.header->header_bytes = 8, refused(&c, "header says");
    c = copy_of(p), c.header->file_bytes += 64, refused(&c, "cut off or damaged");
    c = copy_of(p), c.header->placement = 2, refused(&c, "placement 2");
    c = copy_of(p), c.header->placement = MT_PLACE_QUEUE, refused(&c, "no order of its own");
    c = copy_of(p), c.header->processor_count = 3, refused(&c, "2 processors, not 3");
    c = copy_of(p), c.header->processor_count = 0, refused(&c, "0 processors");
    c = copy_of(p), c.header->slot_bytes += 1 << 20, refused(&c, "of which only");
    c = copy_of(p), c.header->slot_bytes -= 128, refused(&c, "past the slots");
    c = copy_of(p), c.header->tensors.offset += 64, refused(&c, "begins at byte");
    c = copy_of(p), c.header->tensors.count = UINT64_MAX / 88, refused(&c, "past the file's end");
    c = copy_of(p), c.header->instructions.count = 1ull << 60, refused(&c, "past the file's end");
    c = copy_of(p), c.header->strings.count = 0, refused(&c, "begins at byte");
    c = copy_of(p), c.bytes[c.size - 1] = 1, refused(&c, "unknown bytes");
    c = copy_of(p), c.bytes[sizeof(program_header)] = 1, refused(&c, "padding before section 'strings'");
    c = copy_of(p), c.bytes[300]++;
    assert_int_equal(program_open_memory(&q, c.bytes, c.size, "damaged", &error), MT_E_FORMAT);
    assert_non_null(strstr(error.message, "its hash is wrong"));
    assert_string_equal(error.where, "damaged");
    copy_free(&c);
    uint8_t *odd = malloc(p->header->file_bytes + 1);
    memcpy(odd + 1, p->header, p->header->file_bytes);
    assert_int_equal(program_open_memory(&q, odd + 1, p->header->file_bytes, "odd", &error), MT_E_ARGUMENT);
    free(odd);
    mt_program_destroy(p);
}

/* Every length, in a block of just that many bytes: reading behind it is caught by the sanitizer. */
static void test_truncated(void **state) {
    (void)state;
    mt_program *p = small_program(MT_PLACE_STATIC), *q;
    for (size_t size = 0; size < p->header->file_bytes; size++) {
        uint8_t *bytes = malloc(size ? size : 1);
        memcpy(bytes, p->header, size);
        assert_int_not_equal(program_open_memory(&q, bytes, size, NULL, NULL), MT_OK);
        assert_null(q);
        if (size > sizeof(program_header)) { /* the same with a header that agrees */
            ((program_header *)bytes)->file_bytes = size;
            seal(bytes, size);
            if (program_open_memory(&q, bytes, size, NULL, NULL) == MT_OK) { /* only the padding at the end may go */
                assert_true(size > p->header->processors.offset);
                program_free(q);
            }
        }
        free(bytes);
    }
    mt_program_destroy(p);
}

static void read_all(const mt_program *p) {
    char *out;
    mt_error error;
    if (mt_program_summary(p, &out, &error) == MT_OK) free(out);
    if (mt_program_disassemble(p, 0, SIZE_MAX, &out, &error) == MT_OK) free(out);
    for (size_t i = 0; i < p->instructions_count; i += 5)
        if (mt_program_inspect(p, i, &out, &error) == MT_OK) free(out);
}

/* Every byte flipped: refused by its hash; with the hash put right, refused or a program that can be read. */
static void test_flipped(void **state) {
    (void)state;
    mt_program *p = small_program(MT_PLACE_STATIC), *q;
    const size_t size = p->header->file_bytes;
    uint8_t *bytes = malloc(size);
    size_t accepted = 0;
    random_state = 1;
    for (size_t i = 0; i < size; i++) {
        memcpy(bytes, p->header, size);
        bytes[i] ^= (uint8_t)(1u << draw(8));
        const bool slack = i >= offsetof(program_header, slot_bytes) && i < offsetof(program_header, slot_bytes) + 8;
        mt_error error = {0};
        if (program_open_memory(&q, bytes, size, "flipped", &error) == MT_OK) {
            assert_true(slack); /* a few bytes more of memory do no harm */
            program_free(q);
        } else {
            assert_true(error.message[0] && error.code != MT_E_INTERNAL);
        }
        seal(bytes, size);
        if (program_open_memory(&q, bytes, size, "flipped", &error) != MT_OK) continue;
        accepted++;
        read_all(q);
        program_free(q);
    }
    assert_true(accepted < size / 4); /* letters in names and comments, numbers in texts */
    free(bytes);
    mt_program_destroy(p);
}

/* ---- wrong in one place ---- */

static void test_tables(void **state) {
    (void)state;
    mt_program *p = small_program(MT_PLACE_STATIC);
    copy c;
#define WRONG(words, ...) c = copy_of(p), __VA_ARGS__, refused(&c, words)
    WRONG("no name or no text", TABLE(&c, ops, program_op)[1].text = (uint32_t)p->strings_count);
    WRONG("no name or no text", TABLE(&c, ops, program_op)[1].name = 0);
    WRONG("past the table", TABLE(&c, ops, program_op)[0].constant_count = UINT32_MAX);
    WRONG("reserved field", TABLE(&c, ops, program_op)[0].reserved = 1);
    WRONG("is not the one that the program was compiled with", TABLE(&c, ops, program_op)[0].hash[1]++);
    WRONG("is not the one that the program was compiled with", TABLE(&c, constants, program_constant)[0].value++);
    WRONG("its range 3 .. 2 is empty", TABLE(&c, lives, program_live)[0].least = 3,
          TABLE(&c, lives, program_live)[0].most = 2);
    WRONG("name is missing", TABLE(&c, lives, program_live)[0].name = 0);
    WRONG("role 5", TABLE(&c, tensors, program_tensor)[0].role = 5);
    WRONG("rank 6", TABLE(&c, tensors, program_tensor)[0].rank = 6);
    WRONG("not unique", TABLE(&c, tensors, program_tensor)[1].name = p->tensors[0].name);
    WRONG("it is bound", TABLE(&c, tensors, program_tensor)[0].offset = 0);
    WRONG("there is no type", TABLE(&c, tensors, program_tensor)[0].format = p->tensors[0].name);
    WRONG("bytes; its shape and type need", TABLE(&c, tensors, program_tensor)[0].bytes++);
    WRONG("has extent", TABLE(&c, tensors, program_tensor)[0].extent[0] = INT64_MAX);
    WRONG("has extent -1", TABLE(&c, tensors, program_tensor)[0].extent[0] = -1);
    WRONG("no such live value", TABLE(&c, tensors, program_tensor)[0].live[0] = 1);
    WRONG("live value 'pos' can leave the range", TABLE(&c, lives, program_live)[0].most = 5,
          TABLE(&c, tensors, program_tensor)[0].live[0] = 0);
    WRONG("no tensor", TABLE(&c, operands, program_operand)[0].tensor = (uint32_t)p->tensors_count);
    WRONG("outside its tensor", TABLE(&c, operands, program_operand)[0].offset = 1);
    WRONG("outside its tensor", TABLE(&c, operands, program_operand)[0].offset = -1);
    WRONG("outside its tensor", TABLE(&c, operands, program_operand)[0].stride[0] = INT64_MAX);
    WRONG("outside its tensor", TABLE(&c, operands, program_operand)[0].stride[0] = -1);
    WRONG("outside its tensor", TABLE(&c, operands, program_operand)[0].extent[0] = INT64_MAX);
    WRONG("not contiguous", TABLE(&c, operands, program_operand)[0].stride[1] = 0);
    WRONG("arrivals at barrier 0, which has", TABLE(&c, barriers, program_barrier)[0].arrivals++);
    WRONG("0 arrivals", TABLE(&c, barriers, program_barrier)[0].arrivals = 0);
    WRONG("no op", TABLE(&c, nodes, program_node)[0].op = 100);
    WRONG("not behind those of the node before", TABLE(&c, nodes, program_node)[1].first--);
    WRONG("not in its node's range", TABLE(&c, nodes, program_node)[0].count--);
    WRONG("its opcode is", TABLE(&c, instructions, program_instruction)[0].opcode = 1);
    WRONG("no node", TABLE(&c, instructions, program_instruction)[0].node = 100);
    WRONG("7 waits", TABLE(&c, instructions, program_instruction)[0].wait_count = 7);
    WRONG("no operand", TABLE(&c, instructions, program_instruction)[0].tensor[1] = 1000);
    WRONG("more operands than", TABLE(&c, instructions, program_instruction)[0].tensor[9] = 1);
    WRONG("names barrier", TABLE(&c, instructions, program_instruction)[0].arrive[0] = 1000);
    WRONG("names barrier", TABLE(&c, instructions, program_instruction)[0].wait[5] = 1);
    WRONG("outside its op's grid", TABLE(&c, instructions, program_instruction)[0].index[0] = 2);
    WRONG("outside its op's grid", TABLE(&c, instructions, program_instruction)[0].index[0] = -1);
    WRONG("more indices", TABLE(&c, instructions, program_instruction)[0].index[4] = 1);
    WRONG("is in the program twice", TABLE(&c, instructions, program_instruction)[1].index[0] = 0);
    WRONG("differ from those of its node's first", TABLE(&c, instructions, program_instruction)[1].arg[0]++);
    WRONG("order must ascend", TABLE(&c, order, uint32_t)[0] = p->order[1],
          TABLE(&c, order, uint32_t)[1] = p->order[0]);
    WRONG("on two processors", TABLE(&c, order, uint32_t)[0] = p->order[p->processors[1].first]);
    WRONG("does not follow", TABLE(&c, processors, program_processor)[1].first++);
    WRONG("entry 1 of the order", TABLE(&c, order, uint32_t)[1] = 1u << 31);
#undef WRONG
    mt_program_destroy(p);
}

static size_t find_instruction(const mt_program *p, const char *node_name, int nth) {
    for (size_t i = 0; i < p->instructions_count; i++)
        if (p->instructions[i].opcode != PROGRAM_JOIN &&
            !strcmp(program_string(p, p->nodes[p->instructions[i].node].name), node_name) && !nth--)
            return i;
    fail_msg("no such node: %s", node_name);
    return 0;
}

static uint32_t find_tensor(const mt_program *p, const char *name) {
    for (uint32_t t = 0; t < p->tensors_count; t++)
        if (!strcmp(program_string(p, p->tensors[t].name), name)) return t;
    fail_msg("no such tensor: %s", name);
    return 0;
}

static void remove_wait(program_instruction *n, int k) {
    n->wait_count--;
    for (int j = k; j < n->wait_count; j++) n->wait[j] = n->wait[j + 1], n->target[j] = n->target[j + 1];
    n->wait[n->wait_count] = n->target[n->wait_count] = 0;
}

static void remove_arrival(program_instruction *n, int k) {
    n->arrive_count--;
    for (int j = k; j < n->arrive_count; j++) n->arrive[j] = n->arrive[j + 1];
    n->arrive[n->arrive_count] = 0;
}

static void test_order(void **state) {
    (void)state;
    mt_program *p = small_program(MT_PLACE_QUEUE);
    copy c;
    program_instruction *n;
    assert_int_equal(p->order_count, 0);

    c = copy_of(p); /* a missing wait: the message names both sides and the tensor */
    n = &TABLE(&c, instructions, program_instruction)[find_instruction(p, "second", 1)];
    while (n->wait_count) remove_wait(n, 0);
    mt_error error = {0};
    assert_int_equal(open_again(&c, &error), MT_E_FORMAT);
    assert_string_equal(error.where, "s");
    assert_non_null(
        strstr(error.message,
               "(copy 'second' [0, 1, 0, 0, 0]) reads s[0:2, 4:6] without waiting for instruction 0 (scale 'first'"));
    assert_non_null(strstr(error.message, "which writes s[0:2, 0:6]"));
    copy_free(&c);

    c = copy_of(p); /* a wrong target */
    TABLE(&c, instructions, program_instruction)[find_instruction(p, "second", 0)].target[0]++;
    refused(&c, "waits for 2 arrivals at barrier");

    c = copy_of(p); /* the last arrival is missing */
    remove_arrival(&TABLE(&c, instructions, program_instruction)[find_instruction(p, "first", 0)], 0);
    refused(&c, "instructions arrive there");

    c = copy_of(p); /* waits on itself */
    n = &TABLE(&c, instructions, program_instruction)[find_instruction(p, "second", 0)];
    n->wait[0] = n->arrive[0], n->target[0] = p->barriers[n->arrive[0]].arrivals;
    refused(&c, "it may never start");

    c = copy_of(p); /* a cycle: the first waits for what comes after it */
    n = &TABLE(&c, instructions, program_instruction)[0];
    n->wait_count = 1, n->wait[0] = p->instructions[find_instruction(p, "third", 0)].arrive[0],
    n->target[0] = p->barriers[n->wait[0]].arrivals;
    refused(&c, "it may never start");

    c = copy_of(p);
    n = &TABLE(&c, instructions, program_instruction)[find_instruction(p, "third", 0)];
    n->wait_count = 2, n->wait[1] = n->wait[0], n->target[1] = n->target[0];
    refused(&c, "waits twice");

    c = copy_of(
        p); /* slots that overlap although their users are not ordered: x and c of the third node, s in c's place */
    const uint32_t from = find_tensor(p, "c"), to = find_tensor(p, "t");
    TABLE(&c, tensors, program_tensor)[to].offset = p->tensors[from].offset;
    refused(&c, "without waiting for");

    c = copy_of(p); /* a program may not write its inputs */
    TABLE(&c, tensors, program_tensor)[find_tensor(p, "y")].role = MT_INPUT;
    refused(&c, "is an input or a weight");

    c = copy_of(p); /* positions that can pass the end */
    TABLE(&c, lives, program_live)[0].most = INT32_MAX;
    check_status(open_again(&c, &error), &error); /* out of range is not written: harmless */
    copy_free(&c);
    mt_program_destroy(p);
}

/* Instructions of one node that touch the same memory must be numbered as the language says. */
static void test_grid_order(void **state) {
    (void)state;
    mt_graph *g;
    mt_error error = {0};
    check_status(mt_graph_create(&g, &error), &error);
    const mt_tensor x = tensor(g, MT_INPUT, "x", "f32", 2, 6), y = tensor(g, MT_OUTPUT, "y", "f32", 2, 1);
    NODE(g, "split", "sum", MT_OPERAND("x", x), MT_OPERAND("y", y), MT_OPERAND_INTEGER("BR", 2),
         MT_OPERAND_INTEGER("BK", 2));
    mt_program *p = compile(g, 1, MT_PLACE_QUEUE);
    assert_int_equal(p->instructions_count, 3);
    copy c = copy_of(p);
    TABLE(&c, instructions, program_instruction)[0].index[1] = 1;
    TABLE(&c, instructions, program_instruction)[1].index[1] = 0;
    refused(&c, "not numbered in grid order");
    c = copy_of(p);
    remove_wait(&TABLE(&c, instructions, program_instruction)[2], 0);
    refused(&c, "y[0:2, 0:1] without waiting for instruction");
    mt_program_destroy(p);
}

/* ---- regions ---- */

/* Random views and boxes: a region holds every element, and is the exact hull where the view only slices and splits. */
static void test_regions(void **state) {
    (void)state;
    random_state = 7;
    for (int round = 0; round < 20000; round++) {
        program_tensor t = {.role = MT_STATE, .rank = (uint8_t)(1 + draw(3)), .offset = -1};
        static const char *const types[] = {"f32", "u4", "i1", "u3"};
        const tile_format *f = tile_format_find(types[draw(4)]);
        int64_t elements = 1, strides[PROGRAM_RANK];
        for (int d = t.rank - 1; d >= 0; d--) strides[d] = elements, elements *= t.extent[d] = 1 + draw(6);
        t.bytes = tile_format_bytes(f, elements);
        program_operand o = {.rank = (uint8_t)(1 + draw(3))};
        const bool plain = draw(2) && o.rank >= t.rank; /* slices, the first dimension perhaps split */
        if (plain) {
            o.rank = t.rank;
            for (int d = 0; d < t.rank; d++) {
                const int64_t begin = draw((uint32_t)t.extent[d]);
                o.extent[d] = 1 + draw((uint32_t)(t.extent[d] - begin));
                o.stride[d] = strides[d];
                o.offset += begin * strides[d];
            }
            if (o.extent[0] % 2 == 0 && o.rank < 3) {
                memmove(o.extent + 1, o.extent, 4 * sizeof *o.extent),
                    memmove(o.stride + 1, o.stride, 4 * sizeof *o.stride);
                o.extent[0] = 2, o.extent[1] /= 2, o.stride[0] = o.stride[1] * o.extent[1], o.rank++;
            }
        } else {
            o.offset = draw((uint32_t)elements);
            for (int d = 0; d < o.rank; d++) {
                o.extent[d] = 1 + draw(4);
                o.stride[d] = d == o.rank - 1 ? 1 : draw(8);
            }
        }
        for (int d = 0; d < PROGRAM_RANK; d++) o.live[d] = t.live[d] = PROGRAM_NONE;
        mt_program p = {
            .strings = "", .strings_count = 1, .tensors = &t, .tensors_count = 1, .operands = &o, .operands_count = 1};
        program_view v;
        int64_t last = o.offset;
        for (int d = 0; d < o.rank; d++) last += (o.extent[d] - 1) * o.stride[d];
        const mt_status status = program_view_make(&p, &o, f, &v, NULL);
        assert_int_equal(status, last < elements ? MT_OK : MT_E_FORMAT);
        if (status != MT_OK) continue;
        tile_box box = {.rank = o.rank, .reads = true};
        for (int d = 0; d < o.rank; d++) {
            box.dim[d].low = draw((uint32_t)o.extent[d]);
            box.dim[d].high = box.dim[d].low + 1 + draw((uint32_t)(o.extent[d] - box.dim[d].low));
            box.dim[d].offset_live = -1;
        }
        program_region r;
        program_instruction n = {0};
        tile_instance instance = {0};
        program_view_region(&v, &instance, &n, &box, &r);
        int64_t low[PROGRAM_RANK], high[PROGRAM_RANK] = {0}, first = INT64_MAX, end = 0, at[PROGRAM_RANK];
        for (int d = 0; d < PROGRAM_RANK; d++) low[d] = INT64_MAX, at[d] = box.dim[d].low;
        for (int d = 0; d >= 0;) {
            int64_t element = o.offset;
            for (int k = 0; k < o.rank; k++) element += at[k] * o.stride[k];
            for (int k = 0; k < t.rank; k++) {
                const int64_t place = element / strides[k] % t.extent[k];
                low[k] = min_i64(low[k], place), high[k] = max_i64(high[k], place + 1);
                assert_true(place >= r.low[k] && place < r.high[k]);
            }
            first = min_i64(first, element * f->bits / 8), end = max_i64(end, (element * f->bits + f->bits + 7) / 8);
            for (d = o.rank - 1; d >= 0 && ++at[d] == box.dim[d].high; d--) at[d] = box.dim[d].low;
        }
        assert_true(r.first <= first && r.last >= end && r.first >= 0 && r.last <= t.bytes);
        if (!plain || f->bits != 32) continue;
        for (int k = 0; k < t.rank; k++) assert_true(r.low[k] == low[k] && r.high[k] == high[k]);
        assert_true(r.first == first && r.last == end);
    }
}

/* ---- against brute force ---- */

typedef struct oracle {
    size_t n, words;
    bool *touch;      /* [j * n + i], i < j: by the bytes that they touch, they must be ordered */
    bool *regions;    /* the same, by regions */
    uint64_t *done;   /* rows: finished before j starts */
    uint64_t *rows;   /* by barrier */
} oracle;

typedef struct accesses {
    int count;
    program_region region[2 * TILE_PARAMS];
    bool writes[2 * TILE_PARAMS];
    uint64_t *bytes[2];
} accesses;

static void mark_bytes(const mt_program *p, const size_t *base, const program_instruction *n, const tile_box *box,
                       int32_t live, uint64_t *bytes) {
    const program_operand *o = &p->operands[n->tensor[box->tensor]];
    const program_tensor *t = &p->tensors[o->tensor];
    const int bits = tile_format_find(program_string(p, t->format))->bits;
    int64_t at[PROGRAM_RANK], low[PROGRAM_RANK], high[PROGRAM_RANK];
    for (int d = 0; d < box->rank; d++) {
        const int64_t shift = box->dim[d].offset_live >= 0 ? live : 0;
        at[d] = low[d] = max_i64(0, box->dim[d].low + shift);
        high[d] = min_i64(o->extent[d], box->dim[d].high + shift);
        if (low[d] >= high[d]) return;
    }
    for (int d = 0; d >= 0;) {
        int64_t element = o->offset;
        for (int k = 0; k < box->rank; k++) element += at[k] * o->stride[k];
        for (int64_t b = element * bits / 8; b < (element * bits + bits + 7) / 8; b++) {
            const size_t byte = base[o->tensor] + (size_t)b;
            bytes[byte / 64] |= 1ull << byte % 64;
        }
        for (d = box->rank - 1; d >= 0 && ++at[d] == high[d]; d--) at[d] = low[d];
    }
}

static bool meet(const uint64_t *a, const uint64_t *b, size_t words) {
    for (size_t w = 0; w < words; w++)
        if (a[w] & b[w]) return true;
    return false;
}

static oracle oracle_new(const mt_program *p) {
    oracle o = {.n = p->instructions_count, .words = p->instructions_count / 64 + 1};
    arena *a = arena_new();
    program_binding binding;
    mt_error error = {0};
    check_status(program_bind(p, a, &binding, &error), &error);
    size_t total = p->header->slot_bytes, *base = ARENA_ARRAY(a, p->tensors_count, size_t);
    for (size_t t = 0; t < p->tensors_count; t++) {
        base[t] = p->tensors[t].role == MT_TEMP ? (size_t)p->tensors[t].offset : total;
        if (p->tensors[t].role != MT_TEMP) total += (size_t)p->tensors[t].bytes;
    }
    const size_t words = total / 64 + 1;
    accesses *all = ARENA_ARRAY(a, o.n, accesses);
    o.touch = calloc(o.n * o.n, 1), o.regions = calloc(o.n * o.n, 1);
    for (int32_t live = 0; live <= (p->lives_count ? p->lives[0].most : 0);
         live++) { /* one live value at most, from 0 */
        for (size_t i = 0; i < o.n; i++) {
            const program_instruction *n = &p->instructions[i];
            accesses *mine = &all[i];
            *mine = (accesses){0};
            for (int w = 0; w < 2; w++) mine->bytes[w] = ARENA_ARRAY(a, words, uint64_t); /* read, written */
            if (n->opcode == PROGRAM_JOIN) continue;
            tile_instance instance;
            tile_summary s;
            int64_t index[TILE_AXES];
            for (int k = 0; k < TILE_AXES; k++) index[k] = n->index[k];
            check_status(program_bind_instance(p, &binding, n, &instance, &error), &error);
            tile_summarise(&instance, index, &s);
            mine->count = s.box_count;
            for (int k = 0; k < s.box_count; k++) {
                program_view_region(&binding.views[n->tensor[s.box[k].tensor]], &instance, n, &s.box[k],
                                    &mine->region[k]);
                mine->writes[k] = s.box[k].writes;
                mark_bytes(p, base, n, &s.box[k], live, mine->bytes[s.box[k].writes]);
            }
        }
        for (size_t j = 0; j < o.n; j++)
            for (size_t i = 0; i < j; i++) {
                if (meet(all[i].bytes[0], all[j].bytes[1], words) || meet(all[i].bytes[1], all[j].bytes[0], words) ||
                    meet(all[i].bytes[1], all[j].bytes[1], words))
                    o.touch[j * o.n + i] = true;
                for (int x = 0; x < all[i].count; x++)
                    for (int y = 0; y < all[j].count; y++) {
                        const program_region *one = &all[i].region[x], *other = &all[j].region[y];
                        const bool slots =
                            p->tensors[one->tensor].role == MT_TEMP && p->tensors[other->tensor].role == MT_TEMP;
                        if ((slots || one->tensor == other->tensor) && (all[i].writes[x] || all[j].writes[y]) &&
                            program_regions_meet(one, other, INT64_MIN, INT64_MAX))
                            o.regions[j * o.n + i] = true;
                    }
            }
    }
    arena_free(a);
    o.done = malloc(o.n * o.words * 8), o.rows = malloc((p->barriers_count + 1) * o.words * 8);
    return o;
}

static void oracle_free(oracle *o) {
    free(o->touch), free(o->regions), free(o->done), free(o->rows);
}

/* Whether barriers order all pairs of the matrix. */
static void oracle_judge(oracle *o, const mt_program *p, bool *bytes_fine, bool *regions_fine) {
    memset(o->done, 0, o->n * o->words * 8), memset(o->rows, 0, (p->barriers_count + 1) * o->words * 8);
    *bytes_fine = *regions_fine = true;
    for (size_t j = 0; j < o->n; j++) {
        const program_instruction *n = &p->instructions[j];
        uint64_t *done = o->done + j * o->words;
        for (int k = 0; k < n->wait_count; k++)
            for (size_t w = 0; w < o->words; w++) done[w] |= o->rows[n->wait[k] * o->words + w];
        for (int k = 0; k < n->arrive_count; k++) {
            for (size_t w = 0; w < o->words; w++) o->rows[n->arrive[k] * o->words + w] |= done[w];
            o->rows[n->arrive[k] * o->words + j / 64] |= 1ull << j % 64;
        }
        for (size_t i = 0; i < j; i++) {
            if (done[i / 64] >> i % 64 & 1) continue;
            *bytes_fine = *bytes_fine && !o->touch[j * o->n + i];
            *regions_fine = *regions_fine && !o->regions[j * o->n + i];
        }
    }
}

static mt_program *random_program(void) {
    enum { POOL = 8 };
    mt_graph *g;
    mt_live pos;
    mt_error error = {0};
    check_status(mt_graph_create(&g, &error), &error);
    check_status(mt_graph_live(g, "pos", 0, 3, &pos, &error), &error);
    const int64_t rows = 2 + draw(5), columns = 2 + draw(7);
    mt_tensor pool[POOL];
    for (int k = 0; k < POOL; k++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", k);
        pool[k] = tensor(g,
                         k == 0   ? MT_OUTPUT
                         : k == 1 ? MT_STATE
                                  : MT_TEMP,
                         name, "f32", rows + (k == 1 ? 3 : 0), columns);
        if (k > 1) NODE(g, "fill", NULL, MT_OPERAND("y", pool[k]));
    }
    const mt_tensor small = tensor(g, MT_STATE, "small", "u4", rows, columns),
                    sums = tensor(g, MT_TEMP, "sums", "f32", rows, 1);
    NODE(g, "fill", NULL, MT_OPERAND("y", sums));
    const int nodes = 3 + (int)draw(12);
    for (int k = 0; k < nodes; k++) {
        mt_tensor x = pool[2 + draw(POOL - 2)], z = pool[2 + draw(POOL - 2)], y = pool[2 + draw(POOL - 2)];
        if (x == y || z == y) continue;
        const uint32_t kind = draw(10);
        if (kind < 3 && rows > 2) { /* the same rows of all */
            const int64_t begin = draw((uint32_t)rows - 1), end = begin + 1 + draw((uint32_t)(rows - begin));
            check_status(mt_graph_slice(g, x, 0, begin, end, &x, &error), &error);
            check_status(mt_graph_slice(g, y, 0, begin, end, &y, &error), &error);
            check_status(mt_graph_slice(g, z, 0, begin, end, &z, &error), &error);
        } else if (kind < 5) { /* some columns */
            const int64_t begin = draw((uint32_t)columns - 1), end = begin + 1 + draw((uint32_t)(columns - begin));
            check_status(mt_graph_slice(g, x, 1, begin, end, &x, &error), &error);
            check_status(mt_graph_slice(g, y, 1, begin, end, &y, &error), &error);
            check_status(mt_graph_slice(g, z, 1, begin, end, &z, &error), &error);
        }
        const mt_operand br = MT_OPERAND_INTEGER("BR", 1 + draw(3)), bc = MT_OPERAND_INTEGER("BC", 1 + draw(5));
        switch (draw(9)) {
        case 0: NODE(g, "fill", NULL, MT_OPERAND("y", y), br, bc); break;
        case 1: NODE(g, "copy", NULL, MT_OPERAND("x", x), MT_OPERAND("y", y), br, bc); break;
        case 2: NODE(g, "add", NULL, MT_OPERAND("x", x), MT_OPERAND("z", z), MT_OPERAND("y", y), br, bc); break;
        case 3: NODE(g, "stencil", NULL, MT_OPERAND("x", x), MT_OPERAND("y", y), br); break;
        case 4: NODE(g, "total", NULL, MT_OPERAND("x", x), MT_OPERAND("y", y), br, bc); break;
        case 5:
            NODE(g, "put", NULL, MT_OPERAND("x", pool[2]), MT_OPERAND_LIVE("pos", pos), MT_OPERAND("y", pool[1]));
            break;
        case 6:
            NODE(g, "take", NULL, MT_OPERAND("x", pool[1]), MT_OPERAND_LIVE("pos", pos), MT_OPERAND("y", pool[3]));
            break;
        case 7: NODE(g, "split", NULL, MT_OPERAND("x", pool[4]), MT_OPERAND("y", sums), br); break;
        case 8: NODE(g, "nibbles", NULL, MT_OPERAND("x", pool[5]), MT_OPERAND("y", small), br, bc); break;
        }
    }
    NODE(g, "total", NULL, MT_OPERAND("x", sums), MT_OPERAND("y", pool[0])); /* so that nothing is dead */
    for (int k = 2; k < POOL; k++)
        NODE(g, "add", NULL, MT_OPERAND("x", pool[k]), MT_OPERAND("z", pool[k]), MT_OPERAND("y", pool[0]));
    return compile(g, 3, MT_PLACE_QUEUE);
}

static void test_random(void **state) {
    (void)state;
    size_t tried = 0, wrong = 0;
    for (int round = 0; round < 60; round++) {
        random_state = 1000 + (uint64_t)round;
        mt_program *p = random_program();
        copy c = copy_of(p);
        oracle o = oracle_new(p);
        bool bytes_fine, regions_fine;
        oracle_judge(&o, p, &bytes_fine, &regions_fine);
        assert_true(bytes_fine && regions_fine);
        for (size_t i = 0; i < o.n; i++) {
            program_instruction *n = &TABLE(&c, instructions, program_instruction)[i];
            for (int k = 0; k < p->instructions[i].wait_count + p->instructions[i].arrive_count; k++) {
                const bool wait = k < p->instructions[i].wait_count;
                const uint32_t barrier = wait ? 0 : n->arrive[k - n->wait_count];
                if (wait) {
                    remove_wait(n, k);
                } else { /* the barrier still adds up, but does not wait for this one */
                    if (p->barriers[barrier].arrivals == 1) continue;
                    remove_arrival(n, k - n->wait_count);
                    TABLE(&c, barriers, program_barrier)[barrier].arrivals--;
                    for (size_t j = 0; j < o.n; j++)
                        for (int w = 0; w < c.p->instructions[j].wait_count; w++)
                            if (c.p->instructions[j].wait[w] == barrier)
                                TABLE(&c, instructions, program_instruction)[j].target[w]--;
                }
                oracle_judge(&o, c.p, &bytes_fine, &regions_fine);
                mt_error error = {0};
                const mt_status status = program_check(c.p, &error);
                if ((status == MT_OK) != regions_fine || (status == MT_OK && !bytes_fine))
                    fail_msg("round %d, instruction %zu, place %d: bytes %d, regions %d, checker: %s", round, i, k,
                             bytes_fine, regions_fine, error.message);
                tried++;
                wrong += !regions_fine;
                memcpy(c.bytes, p->header, c.size);
            }
        }
        oracle_free(&o);
        copy_free(&c);
        mt_program_destroy(p);
    }
    assert_true(tried > 1000 && wrong > tried / 3);
}

/* ---- texts ---- */

static void test_texts(void **state) {
    (void)state;
    mt_program *p = small_program(MT_PLACE_STATIC);
    mt_error error = {0};
    char *out;
    check_status(mt_program_summary(p, &out, &error), &error);
    assert_non_null(strstr(out, "in 5 nodes for 2 processors, placement static"));
    assert_non_null(strstr(out, "pos in 0 .. 3"));
    assert_non_null(strstr(out, "x scale[R = 4, C = 6, BR = 2]"));
    free(out);
    check_status(mt_program_disassemble(p, 0, 1, &out, &error), &error);
    assert_non_null(strstr(out, "0  scale [0]  x = x, a = 0.5, y = s  | arrive 0\n"));
    free(out);
    check_status(mt_program_disassemble(p, 0, SIZE_MAX, &out, &error), &error);
    size_t lines = 0;
    for (const char *at = out; *at; at++) lines += *at == '\n';
    assert_int_equal(lines, p->instructions_count);
    assert_non_null(strstr(out, "put [0]  x = t, pos = live pos, y = k"));
    free(out);
    assert_int_equal(mt_program_disassemble(p, 1000, 1, &out, &error), MT_E_ARGUMENT);
    check_status(mt_program_disassemble(p, p->instructions_count, 1, &out, &error), &error);
    assert_string_equal(out, "");
    free(out);
    check_status(mt_program_inspect(p, find_instruction(p, "fourth", 1), &out, &error), &error);
    assert_non_null(strstr(out, "of node 'fourth'\nop "));
    assert_non_null(strstr(out, "grid point [m = 1]"));
    assert_non_null(strstr(out, "  reads t[1:2, 0:6]\n"));
    assert_non_null(strstr(out, "  writes k[pos + 1:pos + 2, 0:6]\n"));
    assert_non_null(strstr(out, "24 bytes read, 24 bytes written"));
    assert_non_null(strstr(out, "because this reads t[1:2, 0:6], and "));
    assert_non_null(strstr(out, "(take 'fifth')"));
    free(out);
    check_status(mt_program_inspect(p, 0, &out, &error), &error);
    assert_non_null(strstr(out, "waits on nothing"));
    free(out);
    assert_int_equal(mt_program_inspect(p, 1000, &out, &error), MT_E_ARGUMENT);
    mt_program_destroy(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_save_and_load), cmocka_unit_test(test_header),  cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_flipped),       cmocka_unit_test(test_tables),  cmocka_unit_test(test_order),
        cmocka_unit_test(test_grid_order),    cmocka_unit_test(test_regions), cmocka_unit_test(test_random),
        cmocka_unit_test(test_texts),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
